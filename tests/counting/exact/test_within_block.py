"""Depth-first search inside a block against every path extended, and blocks that are one cycle."""

import numpy as np
import pytest
from small_graphs import naive_counts, random_adjacency, to_csr

from graphgps_spse.counting.exact.within_block import count_ring, new_search_scratch, search_block
from graphgps_spse.counting.work_meter import WorkMeter

NO_LIMIT = 1 << 60


def search(adjacency, max_length, cap=NO_LIMIT, limit=NO_LIMIT):
    n, (row_ptr, col) = len(adjacency), to_csr(adjacency)
    counts, scratch = np.zeros((n * n, max_length)), new_search_scratch(n)
    meter = WorkMeter(np.zeros(2, np.int64), cap, np.array([limit]))
    finished = [
        search_block(n, row_ptr, col, np.arange(n), begin, end, max_length, scratch, meter, task, counts)
        for task, (begin, end) in enumerate([(0, n // 2), (n // 2, n)])
    ]
    assert not scratch.is_free.any()
    return counts.reshape(n, n, max_length).transpose(2, 0, 1), all(finished)


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_to_naive_enumeration(symmetric):
    rng = np.random.default_rng(symmetric)
    for _ in range(12):
        adjacency, max_length = random_adjacency(rng, int(rng.integers(2, 8)), symmetric), int(rng.integers(1, 9))
        np.testing.assert_array_equal(search(adjacency, max_length)[0], naive_counts(adjacency, max_length))


def test_stops_at_its_cap_and_at_ctrl_c():
    adjacency = 1.0 - np.eye(12)
    assert not search(adjacency, 9, cap=100_000)[1]
    assert not search(adjacency, 9, limit=-1)[1]


@pytest.mark.parametrize("max_length", [2, 5, 9])
def test_a_ring_equals_naive_enumeration(max_length):
    order = np.random.default_rng(0).permutation(6)
    ring = np.zeros((6, 6))
    ring[order, np.roll(order, 1)] = ring[np.roll(order, 1), order] = 1.0
    counts, scratch = np.zeros((36, max_length)), new_search_scratch(6)
    assert count_ring(6, *to_csr(ring), np.arange(6), max_length, scratch, counts)
    found = counts.reshape(6, 6, max_length).transpose(2, 0, 1)
    np.testing.assert_array_equal(found, naive_counts(ring, max_length))


def test_a_ring_with_a_chord_is_left_alone():
    adjacency = np.roll(np.eye(5), 1, axis=1)
    adjacency = np.maximum(adjacency, adjacency.T)
    adjacency[0, 2] = adjacency[2, 0] = 1.0
    counts, scratch = np.zeros((25, 3)), new_search_scratch(5)
    assert not count_ring(5, *to_csr(adjacency), np.arange(5), 3, scratch, counts)
    assert not counts.any() and not scratch.is_free.any()
