"""Products across cut vertices against every path extended, and the spans that say where counts are not zero."""

import numpy as np
import pytest
from naive import path_counts

from graphgps_spse.counting.exact.across_blocks import _join_block, count_blocks, new_join_scratch
from graphgps_spse.counting.exact.biconnected import find_blocks, new_block_scratch, new_blocks
from graphgps_spse.counting.exact.within_block import new_search_scratch
from graphgps_spse.counting.graphs import single_graph
from graphgps_spse.counting.work_meter import WorkMeter

NO_LIMIT = 1 << 60


def count(edges, n, max_length, directed, cap=NO_LIMIT):
    graph = single_graph(np.array(edges).T, n, directed)
    blocks = new_blocks(n)
    number = find_blocks(n, *graph.undirected_edges, new_block_scratch(n), blocks)
    counts, spans = np.zeros((n * n, max_length)), np.zeros((2, n * n), np.int16)
    scratch = new_search_scratch(n), new_join_scratch(n)
    meter = WorkMeter(np.zeros(1, np.int64), cap, np.array([NO_LIMIT]))
    is_counted = np.zeros(number, np.bool_)
    edges = graph.directed_edges
    finished = count_blocks(n, *edges, blocks, is_counted, max_length, not directed, *scratch, *spans, meter, counts)
    return counts, spans, finished


def chain_of_blocks(rng):
    """Random blocks that share one node each, and a bridge."""
    edges, first = [], 0
    for size in rng.integers(3, 6, 3).tolist():
        edges += [(first + i, first + (i + 1) % size) for i in range(size)]
        edges += [(first + i, first + j) for i in range(size) for j in range(size) if rng.random() < 0.3 and i != j]
        first += size - 1
    return [*edges, (first, first + 1)], first + 2


@pytest.mark.parametrize("directed", [False, True])
def test_equal_to_naive_enumeration(directed):
    rng = np.random.default_rng(directed)
    for max_length in (1, 4, 9):
        edges, n = chain_of_blocks(rng)
        counts, spans, finished = count(edges, n, max_length, directed)
        assert finished
        expected = path_counts(edges, n, max_length, directed)
        np.testing.assert_array_equal(counts.reshape(n, n, max_length).transpose(2, 0, 1), expected)
        column = np.arange(max_length)
        outside = (column < spans[0][:, None]) | (column >= spans[1][:, None])
        assert not counts[outside].any()


def test_stops_at_its_cap():
    edges, n = chain_of_blocks(np.random.default_rng(0))
    assert not count(edges, n, 6, False, cap=10)[2]


def test_infinite_counts_times_none_are_none():
    """Paths 0 - 1 - 2: inf of 2 edges to node 1, and of there 1 of one edge, none of two, inf of three."""
    counts, low, high = np.zeros((9, 6)), np.zeros(9, np.int16), np.zeros(9, np.int16)
    counts[1, :3], counts[5, :3] = (0, np.inf, 0), (1, 0, np.inf)
    low[1], high[1], low[5], high[5] = 0, 3, 0, 3
    _join_block(3, 0, np.array([1, 2]), np.array([0, 1]), 2, 6, False, np.array([NO_LIMIT]), low, high, counts)
    assert counts[2].tolist() == [0, 0, np.inf, 0, np.inf, 0]
