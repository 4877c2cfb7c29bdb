"""Chromatic self-attention in a single pass over pairs in each direction, for the CPU.

The same function as reference.py, with a derivative written by hand. A, B and the attention weights never exist for all
pairs: they are computed chunk by chunk from the few channels of the pair features, used while they are in cache, and
computed again in backward. What a layer keeps is of the size of its nodes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.chromatic_attention import cpu_kernels
from graphgps_spse.ops.chromatic_attention.contract import ChromaticInput, PairMap
from graphgps_spse.ops.chromatic_attention.cpu_kernels import ChromaticKernels, EdgeRows, Output
from graphgps_spse.ops.chunks import Chunk, cut_into_chunks
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.numba_kernels import NodeArrays, arrays, unsupported
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.ops.threads import Visit, shares_walk, walk

__all__ = ["chromatic_attention", "prepare", "unsupported"]

CHUNK_ROWS = 2048
ChunkWithEdges = tuple[Chunk, EdgeRows]


def chromatic_attention(given: ChromaticInput) -> Tensor:
    """Return y, [N, D]. CPU tensors of float32 or float64 only."""
    layout, heads = given.layout, given.num_heads
    q, k, v = (_by_position(x, 1, heads) for x in (given.q_ND, given.k_ND, given.v_ND))
    maps = [_by_position(x, dim, heads) for pair in (given.score, given.value) for dim, x in enumerate(pair)]
    y_ND = _Attention.apply(layout, heads, given.z_PC, given.rows_E, given.dropout_rate, q, k, v, *maps)
    return y_ND.unflatten(1, (-1, heads)).transpose(1, 2).flatten(1)


def prepare(dim: int, num_heads: int, dtype: torch.dtype) -> None:
    """Compile the kernels for one shape, or load them from numba's cache."""
    x_ND = torch.zeros(2, dim, dtype=dtype, requires_grad=True)
    pair_map = PairMap(torch.zeros(dim, 1, dtype=dtype), x_ND[:0])
    z_PC, rows_E = torch.zeros(4, 1, dtype=dtype), torch.zeros(0, dtype=torch.int64)
    given = ChromaticInput(PairLayout((2,)), num_heads, x_ND, x_ND, x_ND, z_PC, rows_E, pair_map, pair_map, 0.0)
    chromatic_attention(given).sum().backward()


def _by_position(x: Tensor, dim: int, num_heads: int) -> Tensor:
    """Bring D columns or rows ordered (head, position in head) into the kernels' order, (position in head, head)."""
    return x.unflatten(dim, (num_heads, -1)).transpose(dim, dim + 1).flatten(dim, dim + 1).contiguous()


class _Attention(torch.autograd.Function):
    """A chunk's matrix products run over its whole window, whose other rows are ignored or, for sums, zero."""

    @staticmethod
    def forward(
        ctx: Any, layout: PairLayout, heads: int, z: Tensor, rows: Tensor, rate: float, q: Tensor, k: Tensor, v: Tensor,
        map_a: Tensor, edge_a: Tensor, map_b: Tensor, edge_b: Tensor,
    ) -> Tensor:  # fmt: skip
        mask = draw_dropout_mask(layout.num_pairs, 1, rate, q).flatten() if rate else q.new_ones(layout.num_pairs)
        y, max_score, share = (torch.empty_like(q) for _ in range(3))
        kernel, output = cpu_kernels.chromatic_kernels(q.shape[1] // heads, heads), Output(*arrays(y, share))
        q_array, k_array, v_array, mask_array = arrays(q, k, v, mask)
        max_array, windows = max_score.numpy(), _chunks(layout, rows)

        def start() -> Visit[ChunkWithEdges]:
            dot = q.new_empty(heads).numpy()

            def visit(number: int, item: ChunkWithEdges) -> None:
                chunk, edges = item
                w = _mapped(kernel, chunk, edges, z, map_a, edge_a)
                kernel.score(chunk, layout.query_rows, q_array, k_array, w.numpy(), True, max_array, dot)
                b = _mapped(kernel, chunk, edges, z, map_b, edge_b)
                kernel.attend(chunk, layout.query_rows, v_array, *arrays(w.exp_(), b), mask_array, output)

            return visit

        walk(windows, start)
        ctx.layout, ctx.heads = layout, heads
        ctx.save_for_backward(z, rows, mask, q, k, v, map_a, edge_a, map_b, edge_b, y, max_score, share)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        z, rows, mask, q, k, v, map_a, edge_a, map_b, edge_b, y, max_score, share = ctx.saved_tensors
        layout, windows = ctx.layout, _chunks(ctx.layout, rows)
        is_shared = shares_walk(windows)
        kernel = cpu_kernels.chromatic_kernels(q.shape[1] // ctx.heads, ctx.heads, is_shared)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_map_a, grad_map_b = (z.new_zeros(z.shape[1], q.shape[1]) for _ in range(2))
        grad_edge_a, grad_edge_b = torch.empty_like(edge_a), torch.empty_like(edge_b)
        nodes, grad_nodes = NodeArrays(*arrays(q, k, v)), NodeArrays(*arrays(grad_q, grad_k, grad_v))
        max_array, mask_array, grad_array = arrays(max_score, mask, grad_y.contiguous())
        output = Output(*arrays(y, share))

        def start() -> Visit[ChunkWithEdges]:
            dot, grad_product = arrays(q.new_empty(ctx.heads), q.new_empty(q.shape[1]))
            dots = q.new_empty(windows[0][0].rows, ctx.heads).numpy()

            def visit(number: int, item: ChunkWithEdges) -> Callable[[], None]:
                chunk, edges = item
                w = _mapped(kernel, chunk, edges, z, map_a, edge_a)
                kernel.score(chunk, layout.query_rows, nodes.q, nodes.k, w.numpy(), False, max_array, dot)
                b = _mapped(kernel, chunk, edges, z, map_b, edge_b)
                kernel.attend_backward(
                    chunk, layout.query_rows, nodes, *arrays(w.exp_(), b), mask_array, output, grad_array, grad_nodes,
                    grad_product, dots,
                )  # fmt: skip
                for grad, grad_edge in ((w, grad_edge_a), (b, grad_edge_b)):
                    chunk.clear_rest(grad)
                    kernel.take_edges(chunk, edges, *arrays(grad, grad_edge))

                def add() -> None:
                    if is_shared:
                        late = (dots, b.numpy(), grad_nodes.k, grad_nodes.v)
                        kernel.add_late_keys(chunk, layout.query_rows, nodes.q, *late)
                    for grad, grad_map in ((w, grad_map_a), (b, grad_map_b)):
                        grad_map.addmm_(chunk.of(z).t(), grad)

                return add

            return visit

        walk(windows, start)
        return (
            None, None, None, None, None, grad_q, grad_k, grad_v, grad_map_a.t(), grad_edge_a, grad_map_b.t(),
            grad_edge_b,
        )  # fmt: skip


def _chunks(layout: PairLayout, rows_E: Tensor) -> list[ChunkWithEdges]:
    windows, rows = cut_into_chunks(layout, CHUNK_ROWS), rows_E.numpy()
    ends = np.searchsorted(rows, [*(chunk.start for chunk in windows), layout.num_pairs]).tolist()
    return [(chunk, EdgeRows(rows, first, last)) for chunk, first, last in zip(windows, ends, ends[1:])]


def _mapped(kernel: ChromaticKernels, chunk: Chunk, edges: EdgeRows, z: Tensor, map_dc: Tensor, edge: Tensor) -> Tensor:
    """Return a map of the pair features on the chunk's window; the edges' share only on the chunk's own rows."""
    mapped = F.linear(chunk.of(z), map_dc)
    kernel.add_edges(chunk, edges, *arrays(edge, mapped))
    return mapped
