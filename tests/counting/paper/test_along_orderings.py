"""Counts along orderings, against powers of a triangular matrix."""

import numpy as np
import pytest
from naive import path_counts, path_counts_along
from small_graphs import random_edges

from graphgps_spse.counting.graphs import single_graph
from graphgps_spse.counting.paper.along_orderings import count_dense, count_sparse
from graphgps_spse.counting.work_meter import WorkMeter


@pytest.mark.parametrize("kernel", [count_dense, count_sparse])
@pytest.mark.parametrize("directed", [False, True])
def test_counts_along_orderings_equal_powers_of_a_matrix(kernel, directed):
    rng = np.random.default_rng(3)
    for num_nodes, density in ((3, 0.9), (17, 0.15), (16, 0.9), (130, 0.08)):
        edges = random_edges(rng, num_nodes, density)
        adjacency = path_counts(edges, num_nodes, 1, directed)[0]
        graph = single_graph(np.array(edges).T, num_nodes, directed)
        reverse = single_graph(np.array(edges).T[::-1], num_nodes, directed).directed_edges
        orderings = np.stack([rng.permutation(num_nodes) for _ in range(4)])
        best = np.zeros((num_nodes, num_nodes, 9))
        meter = WorkMeter(np.zeros(1, np.int64), 1 << 62, np.zeros(1, np.int64))
        assert kernel(graph.directed_edges.row_ptr, *reverse, directed, orderings, meter, 0, best)
        expected = np.max([path_counts_along(adjacency, ordering, 9, directed) for ordering in orderings], axis=0)
        np.testing.assert_array_equal(best.transpose(2, 0, 1), expected if directed else np.tril(expected))
