"""Small random graphs, as adjacency matrices, for the tests of the counting kernels."""

import numpy as np
from naive import path_counts


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
    return np.concatenate([[0], np.cumsum((adjacency > 0).sum(1))]), np.nonzero(adjacency)[1]
