"""Local degree profile: by hand, and PyG's transform."""

import numpy as np
import torch
from encoding_graphs import TWO_TRIANGLES, both_ways, flat
from torch_geometric.data import Data
from torch_geometric.transforms import LocalDegreeProfile

from graphgps_spse.encodings.ldp import LDP


def test_two_triangles_with_a_tail_and_a_node_apart():
    """Node 3 has the neighbours 1 and 2 of degree 3 and 4 of degree 1: mean 7/3, variance 19/3 - 49/9 = 8/9."""
    node = LDP.of().compute(flat((both_ways([*TWO_TRIANGLES, (3, 4), (4, 4)]), 6))).node
    np.testing.assert_allclose(node[3], [3, 1, 3, 7 / 3, np.sqrt(8 / 9)], rtol=1e-6)
    assert node[0].tolist() == [2, 3, 3, 3, 0] and node[4].tolist() == [1, 3, 3, 3, 0] and not node[5].any()


def test_pyg():
    """PyG does not let a deviation fall below the square root of 1e-5."""
    edges = both_ways([*TWO_TRIANGLES, (3, 4), (4, 5), (4, 6)])
    expected = LocalDegreeProfile()(Data(edge_index=torch.tensor(edges).T, num_nodes=7)).x
    node = LDP.of().compute(flat((edges, 7))).node
    np.testing.assert_allclose(node, expected, atol=4e-3)
    np.testing.assert_allclose(node[:, :4], expected[:, :4], rtol=1e-6)
