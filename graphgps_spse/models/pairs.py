"""All ordered node pairs of a batch as packed rows: where they lie, and how nodes and pairs exchange values.

The n*n pairs of a graph are contiguous rows, receiver-major, and graphs follow each other without padding: row
node_row[i] + j holds receiver i and the j-th node of its graph as sender (GraphBatch has the same order).
Sums run over contiguous rows in a fixed order, so equal input gives equal bits on every device.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Chunk(NamedTuple):
    """Consecutive receivers, first..last-1, whose pair rows start..stop-1 lie in a window of fixed length.

    All windows of a layout have the same length, so that matrix products see one shape.
    """

    first: int
    last: int
    start: int
    stop: int
    window: int
    """First row of the window."""
    rows: int
    """Length of the window."""

    def of(self, x_PD: Tensor) -> Tensor:
        """Return the window's rows of x."""
        return x_PD[self.window : self.window + self.rows]

    def clear_rest(self, x_RD: Tensor) -> None:
        """Set the rows of a window-sized x that belong to other receivers to zero."""
        x_RD[: self.start - self.window] = 0
        x_RD[self.stop - self.window :] = 0


class PairLayout:
    """The pair rows of graphs with `sizes` nodes, in the order of the batch. Index tensors live on `device`."""

    @torch.compiler.disable  # host arithmetic, anew for every batch: nothing that torch.compile could keep
    def __init__(self, sizes: tuple[int, ...], device: torch.device | str = "cpu") -> None:
        self.sizes, self.device = sizes, torch.device(device)
        size_B = np.array(sizes, dtype=np.int64)
        self.num_graphs, self.num_nodes, self.num_pairs = len(sizes), int(size_B.sum()), int((size_B**2).sum())
        self.size_N = np.repeat(size_B, size_B)
        """[N] nodes in the graph of each node: the length of its block of rows as a receiver."""
        self.first_N = np.repeat(np.cumsum(size_B) - size_B, size_B)
        """[N] first node of the graph of each node."""
        self.row_N = np.cumsum(self.size_N) - self.size_N
        """[N] first pair row of each receiver."""

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What kernels need to walk the pairs: first_N, size_N, row_N."""
        return self.first_N, self.size_N, self.row_N

    def chunks(self, max_rows: int) -> list[Chunk]:
        """Cut the receivers into runs of at most `max_rows` rows each (or one receiver, if that alone has more)."""
        rows = max(min(max_rows, self.num_pairs), max(self.sizes))
        ends = np.append(self.row_N, self.num_pairs)
        chunks, first = [], 0
        while first < self.num_nodes:
            last = int(np.searchsorted(ends, ends[first] + rows, side="right")) - 1
            start, stop = int(ends[first]), int(ends[last])
            chunks.append(Chunk(first, last, start, stop, min(start, self.num_pairs - rows), rows))
            first = last
        return chunks

    def edge_rows(self, edge_index_2E: Tensor) -> Tensor:
        """Return the pair row of each edge, [E]: its receiver's block, at the place of its sender."""
        sender_E, receiver_E = edge_index_2E
        return self._row_offset_N[receiver_E] + sender_E

    def nodes_of(self, rows_R: Tensor) -> Tensor:
        """Return receiver and sender of pair rows, [2, R]."""
        receiver_R = self._receiver_P[rows_R]
        return torch.stack([receiver_R, rows_R - self._row_offset_N[receiver_R]])

    @cached_property
    @torch.compiler.disable
    def diagonal_rows(self) -> Tensor:
        """The row of the pair (i, i) of each node, [N]."""
        return to_device(self.row_N + np.arange(self.num_nodes) - self.first_N, self.device)

    def sum_nodes(self, x_ND: Tensor) -> Tensor:
        """Return the sum over the nodes of each graph, [B, D]."""
        return sum_rows(x_ND, self._sizes_B)

    def mean_nodes(self, x_ND: Tensor) -> Tensor:
        """Return the mean over the nodes of each graph, [B, D]."""
        return self.sum_nodes(x_ND) / self._sizes_B[:, None]

    def sum_senders(self, x_PD: Tensor) -> Tensor:
        """Return the sum over the senders of each receiver, [N, D]."""
        return sum_rows(x_PD, self._rows_N)

    def max_senders(self, x_PD: Tensor) -> Tensor:
        """Return the maximum over the senders of each receiver, [N, D]."""
        return torch.segment_reduce(x_PD, "max", lengths=self._rows_N, unsafe=True)

    def at_receivers(self, x_ND: Tensor) -> Tensor:
        """Return each pair's receiver row of x, [P, D]."""
        return gather_rows(x_ND, self._receiver_P, None, self._rows_N)

    def at_senders(self, x_ND: Tensor) -> Tensor:
        """Return each pair's sender row of x, [P, D]."""
        return gather_rows(x_ND, self._sender_P, self._mirror_P, self._rows_N)

    @cached_property
    @torch.compiler.disable
    def _sizes_B(self) -> Tensor:
        return to_device(np.array(self.sizes, dtype=np.int64), self.device)

    @cached_property
    @torch.compiler.disable
    def _rows_N(self) -> Tensor:
        return to_device(self.size_N, self.device)

    @cached_property
    @torch.compiler.disable
    def _receiver_P(self) -> Tensor:
        nodes = torch.arange(self.num_nodes, device=self.device)
        return nodes.repeat_interleave(self._rows_N, output_size=self.num_pairs)

    @cached_property
    @torch.compiler.disable
    def _sender_P(self) -> Tensor:
        offset_N = to_device(self.first_N - self.row_N, self.device)
        return torch.arange(self.num_pairs, device=self.device) + offset_N[self._receiver_P]

    @cached_property
    @torch.compiler.disable
    def _row_offset_N(self) -> Tensor:
        """[N] pair row of each receiver less its first node: add a sender's number for the row of that pair."""
        return to_device(self.row_N - self.first_N, self.device)

    @cached_property
    @torch.compiler.disable
    def _mirror_P(self) -> Tensor:
        """[P] the row of (j, i) for each row (i, j)."""
        return self._row_offset_N[self._sender_P] + self._receiver_P


def to_device(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Return an array as a tensor on a device, without waiting for the work that the device has still to do."""
    return torch.from_numpy(array).to(device, non_blocking=True)


def sum_rows(x_PD: Tensor, count_N: Tensor) -> Tensor:
    """Return sums of runs of `count_N` rows, [N, D], in float32 if x is narrower."""
    x_PD = x_PD.float() if x_PD.dtype.itemsize < 4 else x_PD
    return torch.segment_reduce(x_PD.contiguous(), "sum", lengths=count_N, unsafe=True)


def gather_rows(x_ND: Tensor, index_P: Tensor, order_P: Tensor | None, count_N: Tensor) -> Tensor:
    """Return rows of x by index, [P, D]; row n of x is asked for `count_N[n]` times.

    `order_P` brings the rows that came from one row of x together; None where they already are.
    """
    return _Gather.apply(x_ND, index_P, order_P, count_N)


class _Gather(torch.autograd.Function):
    """Rows of x by index, whose gradient is a sum over contiguous rows instead of an atomic scatter."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, index_P: Tensor, order_P: Tensor | None, count_N: Tensor) -> Tensor:
        ctx.order_P, ctx.count_N = order_P, count_N
        return x_ND.index_select(0, index_P)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_PD: Tensor) -> tuple[Tensor, None, None, None]:
        grad_PD = grad_PD if ctx.order_P is None else grad_PD.index_select(0, ctx.order_P)
        return sum_rows(grad_PD, ctx.count_N).to(grad_PD.dtype), None, None, None
