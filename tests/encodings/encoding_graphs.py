"""Small graphs in flat arrays for the tests of encodings."""

import numpy as np

from graphgps_spse.encodings.base import GraphArrays

TWO_TRIANGLES = [(0, 1), (1, 2), (2, 0), (1, 3), (3, 2)]  # they share the edge (1, 2)


def both_ways(edges):
    return [*edges, *((j, i) for i, j in edges)]


def flat(*graphs):
    """GraphArrays of (edges, num_nodes) pairs, edges exactly as given."""
    edges = [np.array(e, dtype=np.int64).reshape(-1, 2).T for e, _ in graphs]
    node_ptr = np.cumsum([0, *(n for _, n in graphs)])
    return GraphArrays(node_ptr, np.cumsum([0, *(e.shape[1] for e in edges)]), np.concatenate(edges, axis=1))


def random_graphs(num_graphs, seed):
    """Directed random graphs of 1 to 12 nodes with loops and duplicate edges."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 13, num_graphs).tolist()
    return [(rng.integers(0, n, (int(1.5 * n), 2)).tolist(), n) for n in sizes]


def golden_graphs(golden):
    """GraphArrays of the batch of a parity file."""
    ptr, edges = golden["in/ptr"], golden["in/edge_index"]
    graph = np.searchsorted(ptr, edges[0], side="right") - 1
    order = np.argsort(graph, kind="stable")
    edge_ptr = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=len(ptr) - 1))])
    return GraphArrays(ptr, edge_ptr, (edges - ptr[graph])[:, order])
