"""Simple cycles through nodes: by hand, and by their sets of edges."""

import numpy as np
import pytest
from encoding_graphs import TWO_TRIANGLES, both_ways, flat, random_graphs
from naive import cycle_counts

from graphgps_spse.encodings import cycle_counts as module
from graphgps_spse.encodings.cycle_counts import CycleCounts
from graphgps_spse.errors import DataError


def test_two_triangles():
    """Two triangles and the square around both; the square passes all four nodes."""
    node = CycleCounts.of(max_length=5).compute(flat((both_ways(TWO_TRIANGLES), 4))).node
    np.testing.assert_allclose(np.expm1(node), [[1, 1, 0], [2, 1, 0], [2, 1, 0], [1, 1, 0]], atol=1e-6)


def test_random_graphs_equal_sets_of_edges():
    for edges, n in random_graphs(12, seed=13):
        edges = [(i, j) for i, j in edges if i != j]
        expected = cycle_counts(edges, n, 6)[:, 3:]
        found = np.expm1(CycleCounts.of(max_length=6).compute(flat((edges, n))).node)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_with_too_many_paths_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_WORK", 1000)
    complete = ([(i, j) for i in range(12) for j in range(12)], 12)
    with pytest.raises(DataError, match=r"graph 1: counting its cycles of \d+ edges takes more than .*max_length"):
        CycleCounts.of(max_length=12).compute(flat((both_ways([(0, 1)]), 2), complete))
