"""Roots that lie far apart."""

import numpy as np

from graphgps_spse.counting.graphs import single_graph
from graphgps_spse.counting.paper.root_choice import choose_roots

NO_LIMIT = np.array([1 << 62])


def test_roots_are_far_apart_and_fewer_are_the_first_of_more():
    graph = single_graph(np.array([(i, i + 1) for i in range(29)]).T, 30, False)
    key = np.array([7], np.uint64)
    roots, fewer = np.empty(30, np.int64), np.empty(4, np.int64)
    choose_roots(*graph.undirected_edges, key, NO_LIMIT, roots)
    choose_roots(*graph.undirected_edges, key, NO_LIMIT, fewer)
    assert sorted(roots.tolist()) == list(range(30))
    assert roots[:4].tolist() == fewer.tolist()
    assert abs(roots[1] - roots[0]) == max(roots[0], 29 - roots[0])
    assert np.abs(np.diff(roots[:4])).min() >= 7
