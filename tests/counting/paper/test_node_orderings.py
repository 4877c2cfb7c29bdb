"""Orderings of the nodes: those of the paper, against a slow twin that lists them all."""

import networkx as nx
import numpy as np
import pytest
from naive import all_orderings, path_counts, path_counts_along
from small_graphs import random_edges

from graphgps_spse.counting import count_simple_paths
from graphgps_spse.counting.graphs import single_graph
from graphgps_spse.counting.paper.node_orderings import make_orderings
from graphgps_spse.counting.paper.root_choice import fill_keys

NO_LIMIT = np.array([1 << 62])
SKIP_LINKS = [(i, (i + step) % 9) for i in range(9) for step in (1, 4)]
"""A circular skip link graph; the paths of 3 edges from 0 to 1 are 0-4-5-1 and 0-5-6-1."""


def draw(edges, num_nodes, roots, max_depth, num_tries, seed=0, directed=False):
    """The orderings of some roots and depths, [.., N]."""
    graph = single_graph(np.array(edges).T, num_nodes, directed)
    key, seen = np.empty(1, np.uint64), np.zeros(1 << 12, np.uint64)
    fill_keys(*graph.directed_edges, seed, key)
    roots = np.array(roots)
    orderings = np.empty((len(roots) * (max_depth + 1) * num_tries, num_nodes), np.int64)
    num, _ = make_orderings(*graph.directed_edges, roots, 0, max_depth, num_tries, key, seen, NO_LIMIT, orderings)
    return orderings[:num]


def test_circular_skip_links_need_a_partial_breadth_first_step():
    """The paper's figure: breadth-first from 0 or 1 alone never finds both paths, a partial step does."""
    assert path_counts(SKIP_LINKS, 9, 3)[2, 0, 1] == 2
    adjacency = path_counts(SKIP_LINKS, 9, 1)[0]

    def most(orderings):
        return max(path_counts_along(adjacency, ordering, 3)[2, 0, 1] for ordering in orderings)

    assert most(draw(SKIP_LINKS, 9, [0, 1], 0, 50)) < 2
    assert most(draw(SKIP_LINKS, 9, [0, 1], 1, 50)) == 2
    found = count_simple_paths(np.array(SKIP_LINKS).T, 9, 3, method="dag", N=20, D_dfs=0)
    assert found.counts[2, 0, 1] == 2


@pytest.mark.parametrize("switch", [0, 1, 2, 3])
def test_orderings_are_those_of_the_paper(switch):
    """All that the slow twin lists are drawn, and no others."""
    edges = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4)]
    neighbours = [{j for i, j in [*edges, *(e[::-1] for e in edges)] if i == v} for v in range(5)]
    expected = all_orderings(neighbours, 1, switch)
    found = set()
    for seed in range(600):
        found |= {tuple(order) for order in draw(edges, 5, [1], switch, 1, seed)[-1:].tolist()}
    # The last ordering is that of depth `switch`, unless it makes the same acyclic graph as one before.
    allowed = set().union(*(all_orderings(neighbours, 1, s) for s in range(switch + 1)))
    assert found <= allowed
    codes = {tuple(order.index(i) < order.index(j) for i, j in edges) for order in expected}
    reached = {tuple(order.index(i) < order.index(j) for i, j in edges) for order in found}
    assert codes <= reached


@pytest.mark.parametrize("directed", [False, True])
def test_orderings_hold_every_node_once_and_make_different_graphs(directed):
    edges = random_edges(np.random.default_rng(0), 12, 0.2) + [(i, i + 1) for i in range(11)]
    orderings = draw(edges, 12, range(12), 4, 5, directed=directed)
    assert len(orderings) > 100
    assert (np.sort(orderings, axis=1) == np.arange(12)).all()
    graphs = {tuple(np.argsort(order)[i] < np.argsort(order)[j] for i, j in edges) for order in orderings}
    assert len(graphs) == len(orderings)
    if not directed:
        assert set(orderings[:, 0].tolist()) == set(range(12))


def test_depth_zero_is_breadth_first():
    graph = nx.connected_watts_strogatz_graph(30, 4, 0.3, seed=1)
    for root in range(5):
        (order,) = draw(list(graph.edges), 30, [root], 0, 1)
        distance = nx.single_source_shortest_path_length(graph, root)
        assert order[0] == root
        assert (np.diff([distance[v] for v in order]) >= 0).all()
        place = np.argsort(order)
        parent = [min(place[w] for w in graph[v]) for v in order[1:]]
        assert (np.diff(parent) >= 0).all()


def test_what_the_root_does_not_reach_stands_in_front_of_it():
    """Edges 2 -> 0 and 2 -> 3: from root 0 only 1 is reached, and no edge is lost by putting 2, 3 first."""
    edges = [(0, 1), (2, 0), (2, 3)]
    for seed in range(10):
        order = draw(edges, 4, [0], 0, 1, seed, directed=True)[0].tolist()
        assert order[-2:] == [0, 1] and set(order[:2]) == {2, 3}
