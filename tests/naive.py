"""Slow, obvious twins of the fast kernels."""

import numpy as np


def path_counts(edges, num_nodes, max_length, directed=False):
    """[K, N, N] simple paths by length, by extending every path in every possible way."""
    neighbours = {node: set() for node in range(num_nodes)}
    for i, j in edges:
        if i != j:
            neighbours[i].add(j)
            if not directed:
                neighbours[j].add(i)
    counts = np.zeros((max_length, num_nodes, num_nodes))

    def extend(path):
        if len(path) > max_length:
            return
        for node in neighbours[path[-1]] - set(path):
            counts[len(path) - 1, path[0], node] += 1
            extend([*path, node])

    for root in range(num_nodes):
        extend([root])
    return counts


def cycle_counts(edges, num_nodes, max_length):
    """[N, max_length + 1]: entry (i, l) is the number of simple cycles of l edges through node i, as sets of edges."""
    neighbours = {node: set() for node in range(num_nodes)}
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    found = set()

    def extend(path):
        if len(path) > 2 and path[0] in neighbours[path[-1]]:
            found.add(frozenset(frozenset(edge) for edge in zip(path, [*path[1:], path[0]], strict=True)))
        if len(path) < max_length:
            for node in neighbours[path[-1]] - set(path):
                extend([*path, node])

    for root in range(num_nodes):
        extend([root])
    counts = np.zeros((num_nodes, max_length + 1))
    for cycle in found:
        for node in frozenset().union(*cycle):
            counts[node, len(cycle)] += 1
    return counts


def walk_probabilities(edges, num_nodes, num_powers):
    """[C, N, N] powers P^0 .. P^(C - 1) of P = D^-1 A, dense; duplicate edges add up."""
    adjacency = np.zeros((num_nodes, num_nodes))
    for i, j in edges:
        adjacency[i, j] += 1
    degree = adjacency.sum(1, keepdims=True)
    step = np.divide(adjacency, degree, out=np.zeros_like(adjacency), where=degree > 0)
    return np.stack([np.linalg.matrix_power(step, k) for k in range(num_powers)])
