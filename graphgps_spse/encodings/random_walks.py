"""Random walk probabilities: powers of P = D^-1 A, used by RRWP, RWSE and the node features of SPSE."""

import numpy as np

from graphgps_spse.counting.graphs import check_graphs, pair_offsets
from graphgps_spse.encodings.base import GraphArrays
from graphgps_spse.jit import kernel

SCRATCH_BYTES_OF_PAIR = 16
"""Scratch memory of `walk_probabilities` per pair of one graph, in bytes: two powers of P in float64."""


def walk_probabilities(graphs: GraphArrays, num_powers: int, *, pairs: bool) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the entries of P^0 .. P^(num_powers - 1), for all pairs and for nodes (the diagonals).

    A is the directed adjacency matrix: A[i, j] is the number of edges from i to j, self-loops included. D is the
    diagonal matrix of its row sums. A node without outgoing edges has a zero row in P. Sums are in float64, and results
    are rounded to float32 once.

    Returns:
        pair [P, num_powers] float32 (None unless `pairs`), and node [N, num_powers] float32.
    """
    node_ptr, edge_ptr, edges = check_graphs(*graphs)
    pair_ptr = pair_offsets(node_ptr)
    node_NC = np.empty((int(node_ptr[-1]), num_powers), np.float32)
    pair_PC = np.empty((int(pair_ptr[-1]) if pairs else 0, num_powers), np.float32)
    _walk(node_ptr, edge_ptr, pair_ptr, edges, pairs, pair_PC, node_NC)
    return (pair_PC if pairs else None), node_NC


@kernel
def _walk(node_ptr, edge_ptr, pair_ptr, edges, pairs, pair_PC, node_NC):
    for g in range(len(node_ptr) - 1):
        start, begin, end = node_ptr[g], edge_ptr[g], edge_ptr[g + 1]
        n = node_ptr[g + 1] - start
        degree = np.zeros(n)
        for e in range(begin, end):
            degree[edges[0, e]] += 1.0
        power, product = np.eye(n), np.empty((n, n))
        for k in range(node_NC.shape[1]):
            for i in range(n):
                node_NC[start + i, k] = power[i, i]
            if pairs:
                pair = pair_ptr[g]
                for i in range(n):
                    for j in range(n):
                        pair_PC[pair, k] = power[i, j]
                        pair += 1
            product[:] = 0.0
            for e in range(begin, end):
                i, via = edges[0, e], edges[1, e]
                for j in range(n):
                    product[i, j] += power[via, j]
            for i in range(n):
                if degree[i] > 0.0:
                    for j in range(n):
                        product[i, j] /= degree[i]
            power, product = product, power
