"""Small random graphs for the tests of counting."""

from types import SimpleNamespace

import numpy as np
from naive import path_counts

from graphgps_spse.counting.graphs import single_graph


def random_adjacency(rng, num_nodes, symmetric):
    """[n, n] float64 of zeros and ones, of random density, without loops."""
    adjacency = (rng.random((num_nodes, num_nodes)) < rng.uniform(0.2, 1.0)).astype(float)
    np.fill_diagonal(adjacency, 0.0)
    return np.maximum(adjacency, adjacency.T) if symmetric else adjacency


def naive_counts(adjacency, max_length):
    """[K, n, n] by extending every path."""
    return path_counts(np.argwhere(adjacency).tolist(), len(adjacency), max_length, directed=True)


def to_csr(adjacency):
    """Row pointers and columns of a matrix."""
    return np.concatenate([[0], np.cumsum((adjacency > 0).sum(1))]), np.ascontiguousarray(np.nonzero(adjacency)[1])


def as_graph(adjacency):
    """A directed graph in the form of the engine."""
    return single_graph(np.stack(np.nonzero(adjacency)), len(adjacency), True)


def random_edges(rng, num_nodes, density):
    """Directed edges, each with probability `density`."""
    return [(i, j) for i in range(num_nodes) for j in range(num_nodes) if i != j and rng.random() < density]


def random_graphs(num_graphs, seed=0):
    """Sparse random graphs of 0 to 24 nodes in flat arrays."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 25, num_graphs)
    sizes[:2] = 0, 1
    edges = []
    for n in sizes.tolist():
        tree = [(int(rng.integers(0, i)), i) for i in range(1, n)]
        extra = rng.integers(0, n, (n // 6, 2)).tolist() if n else []
        edges.append(np.array([*tree, *extra], dtype=np.int64).reshape(-1, 2).T)
    ptr = [np.concatenate([[0], np.cumsum(x)]) for x in (sizes, [e.shape[1] for e in edges])]
    return SimpleNamespace(node_ptr=ptr[0], edge_ptr=ptr[1], edge_index=np.concatenate(edges, axis=1))


def graph_of(graphs, g):
    edges = graphs.edge_index[:, graphs.edge_ptr[g] : graphs.edge_ptr[g + 1]]
    return edges, int(graphs.node_ptr[g + 1] - graphs.node_ptr[g])
