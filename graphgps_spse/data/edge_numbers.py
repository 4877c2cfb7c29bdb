"""Edges of a batch, whose nodes are numbered through the batch, and the number of edges from each node."""

import torch
from torch import Tensor

from graphgps_spse import row_runs
from graphgps_spse.jit import kernel
from graphgps_spse.row_runs import RowRuns


def take_edges(edge_index_2E: Tensor, nodes: RowRuns, edges: RowRuns) -> tuple[Tensor, Tensor]:
    """Return the edges of a batch [2, E] and the number of edges from each of its nodes [N], int64.

    `nodes` and `edges` are the rows of its graphs in the split. In `edge_index_2E`, the edges of the split, the nodes
    of each graph are numbered from 0; in the batch, they are numbered through all graphs. Raises IndexError for edges
    that the split does not have, or that lead out of their graph.
    """
    if not row_runs.copies(edge_index_2E):
        taken_2E = edges.take(edge_index_2E, dim=1).to(torch.int64)
        taken_2E = taken_2E + edges.repeat(nodes.first_B, taken_2E.device)
        return taken_2E, taken_2E.new_zeros(nodes.total).index_add_(0, taken_2E[0], torch.ones_like(taken_2E[0]))
    taken_2E = torch.empty(2, edges.total, dtype=torch.int64)
    degree_N = torch.zeros(nodes.total, dtype=torch.int64)
    wrong = _take(
        edge_index_2E.numpy(), edges.start_B, edges.count_B, nodes.ptr, taken_2E.numpy(), degree_N.numpy()
    )  # fmt: skip
    if wrong >= 0:
        raise IndexError(f"graph {wrong} of the batch: its edges lead out of the graph, or are not among those given")
    return taken_2E, degree_N


@kernel
def _take(edge_index_2E, start_B, count_B, node_ptr, taken_2E, degree_N):
    """Fill in the last two arrays, the second of which is zero; return the number of a faulty graph, or -1."""
    for b in range(len(count_B)):  # before any write: the arrays are as long as all counts together
        outside = start_B[b] < 0 or start_B[b] + count_B[b] > edge_index_2E.shape[1]
        if outside or count_B[b] < 0 or node_ptr[b] > node_ptr[b + 1]:
            return b
    edge = 0
    for b in range(len(count_B)):
        first, size = node_ptr[b], node_ptr[b + 1] - node_ptr[b]
        for given in range(start_B[b], start_B[b] + count_B[b]):
            sender, receiver = edge_index_2E[0, given], edge_index_2E[1, given]
            if sender < 0 or sender >= size or receiver < 0 or receiver >= size:
                return b
            taken_2E[0, edge], taken_2E[1, edge] = first + sender, first + receiver
            degree_N[first + sender] += 1
            edge += 1
    return -1
