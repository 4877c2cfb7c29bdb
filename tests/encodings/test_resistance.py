"""Effective resistance: series and parallel circuits by hand, and the pseudoinverse of numpy."""

import numpy as np
from encoding_graphs import TWO_TRIANGLES, both_ways, flat, random_graphs
from test_heat_kernel import laplacian

from graphgps_spse.encodings.resistance import Resistance


def resistance(edges, n):
    return Resistance.of().compute(flat((edges, n))).pair.reshape(n, n, 2)


def test_series_parallel_and_no_connection():
    """A path of two edges has two ohms; between two nodes of a triangle, one ohm lies beside two."""
    path = resistance(both_ways([(0, 1), (1, 2)]), 4)
    np.testing.assert_allclose(path[:3, :3, 0], [[0, 1, 2], [1, 0, 1], [2, 1, 0]], atol=1e-6)
    assert path[3, :, 0].tolist() == [0, 0, 0, 0] and path[3, :, 1].tolist() == [1, 1, 1, 0]
    triangle = resistance(both_ways([(0, 1), (1, 2), (2, 0)]), 3)
    np.testing.assert_allclose(triangle[..., 0], (1 - np.eye(3)) * 2 / 3, rtol=1e-6)
    bridge = resistance(both_ways(TWO_TRIANGLES), 4)  # by symmetry no current flows through the edge (1, 2)
    np.testing.assert_allclose(bridge[0, 3, 0], 1, rtol=1e-6)
    np.testing.assert_allclose(bridge[1, 2, 0], 1 / 2, rtol=1e-6)


def test_random_graphs_equal_the_pseudoinverse():
    for edges, n in random_graphs(30, seed=4):
        inverse = np.linalg.pinv(laplacian(edges, n), hermitian=True)
        expected = np.diag(inverse)[:, None] + np.diag(inverse) - 2 * inverse
        found = resistance(edges, n)
        joined = found[..., 1] == 0
        np.testing.assert_allclose(found[..., 0][joined], expected[joined], atol=1e-5)
        reach = np.linalg.matrix_power(np.eye(n) + (laplacian(edges, n) != 0), n) > 0
        np.testing.assert_array_equal(joined, reach)
        assert (found[..., 0][~joined] == 0).all()
