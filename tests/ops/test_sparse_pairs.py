"""Which nodes attend to each other in BigBird, and how many."""

import numpy as np
import pytest

from graphgps_spse.ops.sparse_pairs import SparsePlan, block_pairs, node_pairs


@pytest.mark.parametrize("num_random", [0, 2])
def test_blocks_attend_to_the_ends_to_neighbours_and_to_random_ones(num_random):
    pairs = block_pairs(12, SparsePlan(3, num_random, 2, 3))
    assert len(np.unique(pairs, axis=1).T) == pairs.shape[1]
    for head in range(2):
        for query in range(12):
            keys = set(pairs[2, (pairs[0] == head) & (pairs[1] == query)].tolist())
            if query in (0, 11):
                assert keys == set(range(12))
                continue
            fixed = {0, 11, query - 1, query, query + 1}
            assert fixed <= keys <= set(range(12)) and len(keys) == len(fixed) + num_random


def test_heads_and_seeds_draw_blocks_of_their_own_and_always_the_same():
    first, again, other = (block_pairs(12, SparsePlan(3, 2, 2, seed)) for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    of_head = [first[1:, first[0] == head] for head in range(2)]
    assert not np.array_equal(*of_head)


@pytest.mark.parametrize("num_blocks", range(1, 9))
def test_few_blocks_all_attend_to_all(num_blocks):
    """Up to eight blocks, at most four are neither ends nor neighbours."""
    pairs = block_pairs(num_blocks, SparsePlan(3, 4, 1))
    assert {tuple(pair) for pair in pairs[1:].T.tolist()} == set(np.ndindex(num_blocks, num_blocks))
    assert pairs.shape[1] == num_blocks**2


def test_the_number_of_pairs_grows_as_that_of_nodes():
    few, many = (node_pairs(size, SparsePlan(3, 3, 2)).shape[1] for size in (300, 3_000))
    assert many < 10.5 * few
    assert many < 30 * 3_000 * 2  # eight blocks of three, and six global keys
