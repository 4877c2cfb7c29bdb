"""One CSA layer's attention in a single pass over pairs in each direction, for the CPU.

The same function of the same arguments as csa_attention.plain_attention, with a hand-written derivative. A, B and the
softmax weights never exist for all pairs: they are made chunk by chunk from the few channels of the pair features, used
while they are in cache, and made again in backward. What a layer keeps is of the size of its nodes.
"""

import time
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.models.csa_attention import AttentionInput
from graphgps_spse.models.csa_kernels import Kernels, kernels
from graphgps_spse.models.csa_pairs import PairMap
from graphgps_spse.models.fused import arrays
from graphgps_spse.models.pairs import Chunk, PairLayout

CHUNK_ROWS = 2048


def fused_attention(given: AttentionInput, layout: PairLayout, num_heads: int) -> Tensor:
    """Return y, [N, D]. CPU tensors of float32 or float64 only. z has no gradient here, as it is data."""
    q, k, v = (_by_position(x, 1, num_heads) for x in (given.q_ND, given.k_ND, given.v_ND))
    maps = [_by_position(x, dim, num_heads) for pair in (given.score, given.value) for dim, x in enumerate(pair)]
    y_ND = _FusedAttention.apply(layout, num_heads, given.z_PC, given.rows_E, given.keep_P, q, k, v, *maps)
    return y_ND.unflatten(1, (-1, num_heads)).transpose(1, 2).flatten(1)


def compile_kernels(dim: int, num_heads: int, dtype: torch.dtype = torch.float32) -> float:
    """Compile the kernels for one shape, or load them from numba's cache, ahead of the first step; return seconds."""
    start = time.perf_counter()
    x_ND = torch.zeros(2, dim, dtype=dtype, requires_grad=True)
    pair_map = PairMap(torch.zeros(dim, 1, dtype=dtype), x_ND[:0])
    z_PC, rows_E = torch.zeros(4, 1, dtype=dtype), torch.zeros(0, dtype=torch.int64)
    given = AttentionInput(x_ND, x_ND, x_ND, z_PC, rows_E, pair_map, pair_map, None)
    fused_attention(given, PairLayout((2,)), num_heads).sum().backward()
    return time.perf_counter() - start


def _by_position(x: Tensor, dim: int, num_heads: int) -> Tensor:
    """Bring D columns or rows ordered (head, position in head) into the kernels' order, (position in head, head)."""
    return x.unflatten(dim, (num_heads, -1)).transpose(dim, dim + 1).flatten(dim, dim + 1).contiguous()


class _FusedAttention(torch.autograd.Function):
    """A chunk's matrix products run over its whole window, whose other rows are ignored or, for sums, zero."""

    @staticmethod
    def forward(
        ctx: Any, layout: PairLayout, heads: int, z: Tensor, rows: Tensor, keep: Tensor | None, q: Tensor, k: Tensor,
        v: Tensor, map_a: Tensor, edge_a: Tensor, map_b: Tensor, edge_b: Tensor,
    ) -> Tensor:  # fmt: skip
        keep = q.new_ones(layout.num_pairs) if keep is None else keep.flatten()
        y, top, share = (torch.empty_like(q) for _ in range(3))
        kernel, nodes = kernels(q.shape[1] // heads, heads), arrays(q, k, v)
        keep_array, *results, top_array, dot = arrays(keep, y, share, top, q.new_empty(heads))
        for chunk, edges in _chunks(layout, rows):
            w = _mapped(kernel, chunk, edges, z, map_a, edge_a)
            kernel.score(chunk, *layout.arrays, *nodes[:2], w.numpy(), True, top_array, dot)
            b = _mapped(kernel, chunk, edges, z, map_b, edge_b)
            kernel.attend(chunk, *layout.arrays, nodes[2], *arrays(w.exp_(), b), keep_array, *results)
        ctx.layout, ctx.heads = layout, heads
        ctx.save_for_backward(z, rows, keep, q, k, v, map_a, edge_a, map_b, edge_b, y, top, share)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        z, rows, keep, q, k, v, map_a, edge_a, map_b, edge_b, y, top, share = ctx.saved_tensors
        layout, kernel, nodes = ctx.layout, kernels(q.shape[1] // ctx.heads, ctx.heads), arrays(q, k, v)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_map_a, grad_map_b = (z.new_zeros(z.shape[1], q.shape[1]) for _ in range(2))
        grad_edge_a, grad_edge_b = torch.empty_like(edge_a), torch.empty_like(edge_b)
        top_array, dot = arrays(top, q.new_empty(ctx.heads))
        inputs = arrays(keep, y, share, grad_y.contiguous(), grad_q, grad_k, grad_v, q.new_empty(q.shape[1]))
        for chunk, edges in _chunks(layout, rows):
            w = _mapped(kernel, chunk, edges, z, map_a, edge_a)
            kernel.score(chunk, *layout.arrays, *nodes[:2], w.numpy(), False, top_array, dot)
            b = _mapped(kernel, chunk, edges, z, map_b, edge_b)
            kernel.attend_backward(chunk, *layout.arrays, *nodes, *arrays(w.exp_(), b), *inputs, dot)
            for grad, grad_map, grad_edge in ((w, grad_map_a, grad_edge_a), (b, grad_map_b, grad_edge_b)):
                chunk.clear_rest(grad)
                grad_map.addmm_(chunk.of(z).t(), grad)
                kernel.take_edges(chunk, *edges, *arrays(grad, grad_edge))
        return (
            None, None, None, None, None, grad_q, grad_k, grad_v, grad_map_a.t(), grad_edge_a, grad_map_b.t(),
            grad_edge_b,
        )  # fmt: skip


class _Edges(NamedTuple):
    """The edges of a chunk: `rows` of all edges, ascending, and the chunk's first and last."""

    rows: np.ndarray
    first: int
    last: int


def _chunks(layout: PairLayout, rows_E: Tensor) -> list[tuple[Chunk, _Edges]]:
    chunks, rows = layout.chunks(CHUNK_ROWS), rows_E.numpy()
    ends = np.searchsorted(rows, [*(chunk.start for chunk in chunks), layout.num_pairs]).tolist()
    return [(chunk, _Edges(rows, first, last)) for chunk, first, last in zip(chunks, ends, ends[1:])]


def _mapped(kernel: Kernels, chunk: Chunk, edges: _Edges, z: Tensor, map_dc: Tensor, edge: Tensor) -> Tensor:
    """Return a map of the pair features on the chunk's window; the edges' share only on the chunk's own rows."""
    mapped = F.linear(chunk.of(z), map_dc)
    kernel.add_edges(chunk, *edges, *arrays(edge, mapped))
    return mapped
