"""Closed forms for the last four edges, on directed and undirected graphs, against every path extended."""

import numpy as np
import pytest
from small_graphs import naive_counts, random_adjacency, to_csr

from graphgps_spse.counting.exact.last_four_edges import (
    block_matrices,
    finish_counts,
    new_sums,
    predict_last_four,
    walk_prefixes,
)
from graphgps_spse.counting.work_meter import WorkMeter

NO_LIMIT = 1 << 60


def count(adjacency, depth, symmetric, cap=NO_LIMIT, limit=NO_LIMIT):
    m, matrices = len(adjacency), block_matrices(adjacency, np.array([NO_LIMIT]))
    prefixes, sums = np.zeros((depth + 1, m, m)), new_sums(m)
    meter = WorkMeter(np.zeros(1, np.int64), cap, np.array([limit]))
    finished = walk_prefixes(*to_csr(adjacency), matrices, symmetric, 0, m, meter, 0, prefixes, sums)
    return finish_counts(matrices, prefixes, sums, meter.limit), finished, int(meter.spent[0])


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_equal_to_naive_enumeration(symmetric, depth):
    rng = np.random.default_rng([depth, symmetric])
    for _ in range(12):
        adjacency = random_adjacency(rng, int(rng.integers(2, 8)), symmetric)
        np.testing.assert_array_equal(count(adjacency, depth, symmetric)[0], naive_counts(adjacency, depth + 4))


def test_a_symmetric_graph_counted_as_a_directed_one():
    """The code for one direction is right for both."""
    adjacency = random_adjacency(np.random.default_rng(5), 9, True)
    for depth in (0, 2):
        np.testing.assert_array_equal(count(adjacency, depth, True)[0], count(adjacency, depth, False)[0])


def test_rows_of_different_sources_do_not_meet():
    adjacency = random_adjacency(np.random.default_rng(6), 8, True)
    m, matrices, csr = 8, block_matrices(adjacency, np.array([NO_LIMIT])), to_csr(adjacency)
    prefixes, sums = np.zeros((2, m, m)), new_sums(m)
    meter = WorkMeter(np.zeros(2, np.int64), NO_LIMIT, np.array([NO_LIMIT]))
    for task, (begin, end) in enumerate([(3, 8), (0, 3)]):
        walk_prefixes(*csr, matrices, True, begin, end, meter, task, prefixes, sums)
        assert not prefixes[:, 0].any() or task == 1
    np.testing.assert_array_equal(finish_counts(matrices, prefixes, sums, meter.limit), count(adjacency, 1, True)[0])


def test_stops_at_its_cap_and_at_ctrl_c():
    adjacency = 1.0 - np.eye(40)
    _, finished, work = count(adjacency, 8, True, cap=10_000_000)
    assert not finished and 10_000_000 < work < 12_500_000
    assert not count(adjacency, 8, True, limit=-1)[1]


def test_products_stop_at_ctrl_c():
    """A product takes m^3 steps, seconds in a block of a few thousand vertices."""
    adjacency = 1.0 - np.eye(6)
    limit, stopped = np.array([NO_LIMIT]), np.array([-1])
    matrices, prefixes = block_matrices(adjacency, limit), np.ones((2, 6, 6))
    assert matrices.reshape(6, -1).any(1).all()
    assert block_matrices(adjacency, stopped).reshape(6, -1).any(1).tolist() == [True, True, False, False, True, False]
    assert finish_counts(matrices, prefixes, new_sums(6), limit)[1:].any()
    assert not finish_counts(matrices, prefixes, new_sums(6), stopped)[1:].any()


def test_prediction_meets_the_work():
    m, depth = 12, 3
    paths = np.array([m * np.prod(np.arange(m - k, m), initial=1.0) for k in range(9)])
    predicted = predict_last_four(m, paths)[depth + 3]
    work = count(1.0 - np.eye(m), depth, True)[2]
    assert 0.5 < work / predicted < 2.0
