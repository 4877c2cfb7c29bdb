"""Electrostatic encoding: an edge by hand, and the formulas of GraphGPS in numpy."""

import numpy as np
from encoding_graphs import both_ways, flat, random_graphs
from test_heat_kernel import laplacian

from graphgps_spse.encodings.elstaticse import ElstaticSE


def test_one_edge_and_a_node_apart():
    """The pseudoinverse of an edge is [[1, -1], [-1, 1]] / 4, so the other end has the potential -1/2."""
    node = ElstaticSE.of().compute(flat((both_ways([(0, 1)]), 2), ([], 1))).node
    half = [-0.5, 0, -0.25, np.sqrt(1 / 8)]
    np.testing.assert_allclose(node, [[*half, *half, -0.5, -0.5]] * 2 + [[0] * 10], atol=1e-6)


def test_random_graphs_equal_the_formulas():
    for edges, n in random_graphs(30, seed=2):
        matrix = laplacian(edges, n)
        inverse = np.linalg.pinv(matrix, hermitian=True)
        potential, degree = inverse - np.diag(inverse), np.diag(matrix)
        step = (np.diag(degree) - matrix) / np.maximum(degree, 1)[:, None]
        spread = [potential.std(axis, ddof=1) if n > 1 else np.zeros(n) for axis in (0, 1)]
        expected = [potential.min(0), potential.max(0), potential.mean(0), spread[0]]
        expected += [potential.min(1), potential.max(1), potential.mean(1), spread[1]]
        expected += [(step * potential).sum(0), (step * potential).sum(1)]
        node = ElstaticSE.of().compute(flat((edges, n))).node
        np.testing.assert_allclose(node.T, expected, atol=2e-6)
