"""Subset dynamic programming against every path extended, and where nothing can be extended, closed forms."""

from math import factorial

import numpy as np
import pytest
from small_graphs import naive_counts, random_adjacency

from graphgps_spse.counting.exact.vertex_subsets import MAX_VERTICES, count_subsets
from graphgps_spse.counting.work_meter import WorkMeter

NO_LIMIT = 1 << 60


def count(adjacency, max_length, cap=NO_LIMIT, limit=NO_LIMIT):
    m = len(adjacency)
    counts, meter = np.zeros((min(max_length, m - 1), m, m)), WorkMeter(np.zeros(2, np.int64), cap, np.array([limit]))
    finished = [
        count_subsets(adjacency, begin, end, meter, task, counts)
        for task, (begin, end) in enumerate([(0, m // 2), (m // 2, m)])
    ]
    return counts, all(finished)


@pytest.mark.parametrize("symmetric", [True, False])
def test_equal_to_naive_enumeration(symmetric):
    rng = np.random.default_rng(symmetric)
    for _ in range(15):
        m, max_length = int(rng.integers(2, 8)), int(rng.integers(1, 9))
        adjacency = random_adjacency(rng, m, symmetric)
        expected = naive_counts(adjacency, max_length)[: m - 1]
        np.testing.assert_array_equal(count(adjacency, max_length)[0], expected)


def test_complete_graph_of_14():
    counts = count(1.0 - np.eye(14), 13)[0]
    for k in range(1, 14):
        assert counts[k - 1, 3, 7] == factorial(12) // factorial(13 - k) and counts[k - 1, 5, 5] == 0


def test_largest_counts_are_exact_integers():
    assert factorial(MAX_VERTICES - 2) < 2**53 < factorial(MAX_VERTICES - 1)


def test_stops_at_its_cap_and_at_ctrl_c():
    adjacency = 1.0 - np.eye(16)
    assert not count(adjacency, 15, cap=1_000_000)[1]
    assert not count(adjacency, 15, limit=-1)[1]
