"""Chromatic self-attention in a single pass over pairs in each direction, for the CPU.

The same function as reference.py, with a derivative written by hand. A, B and the attention weights never exist for all
pairs: they are computed chunk by chunk from the few channels of the pair features, used while they are in cache, and
computed again in backward. What a layer keeps is of the size of its nodes.
"""

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.ops.chromatic_attention import cpu_kernels
from graphgps_spse.ops.chromatic_attention.contract import ChromaticInput, PairMap
from graphgps_spse.ops.chromatic_attention.cpu_kernels import LateNodes, Map, Maps, Output, Scratch
from graphgps_spse.ops.chunks import Share, Shares, add_late_keys, rows_of_chunks, shares_of
from graphgps_spse.ops.cpu_dropout import Mask, new_mask
from graphgps_spse.ops.numba_kernels import NodeArrays, arrays, numbers, scratch, unsupported
from graphgps_spse.ops.pair_layout import PairLayout

__all__ = ["chromatic_attention", "prepare", "unsupported"]

CHUNK_ROWS = 1024
"""Rows of a chunk where BLAS has no separate code for small matrices."""


def chromatic_attention(given: ChromaticInput) -> Tensor:
    """Return y, [N, D]. CPU tensors of float32 or float64 only."""
    maps = (*given.score, *given.value)
    return _Attention.apply(
        given.layout, given.num_heads, given.z_PC.contiguous(), given.rows_E, given.dropout_rate, given.q_ND,
        given.k_ND, given.v_ND, *maps,
    )  # fmt: skip


def prepare(dim: int, num_heads: int, dtype: torch.dtype) -> None:
    """Compile the kernels for one shape, or load them from numba's cache."""
    x_ND = torch.zeros(2, dim, dtype=dtype, requires_grad=True)
    pair_map = PairMap(torch.zeros(dim, 1, dtype=dtype), x_ND[:0])
    z_PC, rows_E = torch.zeros(4, 1, dtype=dtype), torch.zeros(0, dtype=torch.int64)
    given = ChromaticInput(PairLayout((2,)), num_heads, x_ND, x_ND, x_ND, z_PC, rows_E, pair_map, pair_map, 0.0)
    chromatic_attention(given).sum().backward()


@cache
def _orders(dim: int, num_heads: int) -> tuple[Tensor, Tensor]:
    """Return the columns that bring (head, position in head) into the kernels' order, (position in head, head); [D].

    The second result leads back.
    """
    columns = torch.arange(dim).unflatten(0, (num_heads, -1)).t().flatten()
    return columns, columns.argsort()


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layout: PairLayout, heads: int, z: Tensor, rows: Tensor, rate: float, q: Tensor, k: Tensor, v: Tensor,
        map_a: Tensor, edge_a: Tensor, map_b: Tensor, edge_b: Tensor,
    ) -> Tensor:  # fmt: skip
        order_D, back_D = _orders(q.shape[1], heads)
        q, k, v, edge_a, edge_b = (x.index_select(1, order_D) for x in (q, k, v, edge_a, edge_b))
        map_a, map_b = (x.t().index_select(1, order_D) for x in (map_a, map_b))
        mask = new_mask(rate, q.dtype)
        y, max_score, share = (torch.empty_like(q) for _ in range(3))
        kernel, shares = cpu_kernels.chromatic_kernels(q.shape[1] // heads, heads), _shares(layout, z, q)
        given = _given(layout, shares, (z, rows, q, k, v, map_a, edge_a, map_b, edge_b), mask)
        max_array, output = max_score.numpy(), Output(*arrays(y, share))

        def visit(share: Share, buffers: Scratch) -> None:
            kernel.forward(share, *given, max_array, output, buffers)

        shares.walk(visit, lambda: _scratch(shares, z, heads, q), _key(z, heads, q))
        ctx.layout, ctx.heads, ctx.mask = layout, heads, mask
        ctx.save_for_backward(z, rows, q, k, v, map_a, edge_a, map_b, edge_b, y, max_score, share)
        return y.index_select(1, back_D)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        z, rows, q, k, v, map_a, edge_a, map_b, edge_b, y, max_score, share = ctx.saved_tensors
        layout, heads, shares = ctx.layout, ctx.heads, _shares(ctx.layout, z, q)
        order_D, back_D = _orders(q.shape[1], heads)
        kernel, num_shares = cpu_kernels.chromatic_kernels(q.shape[1] // heads, heads), len(shares.shares)
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_maps = [z.new_zeros(num_shares, *map_a.shape) for _ in range(2)]
        grad_edge_a, grad_edge_b = torch.empty_like(edge_a), torch.empty_like(edge_b)
        given = _given(layout, shares, (z, rows, q, k, v, map_a, edge_a, map_b, edge_b), ctx.mask)
        max_array, grad_array = arrays(max_score, grad_y.index_select(1, order_D))
        grad_nodes, output = NodeArrays(*arrays(grad_q, grad_k, grad_v)), Output(*arrays(y, share))
        late = LateNodes(*(numbers(q, num_shares, shares.most_late, q.shape[1]) for _ in range(2)))
        sums = Maps(*(Map(*arrays(*pair)) for pair in zip(grad_maps, (grad_edge_a, grad_edge_b))))

        def visit(share: Share, buffers: Scratch) -> None:
            kernel.backward(share, *given, max_array, output, grad_array, grad_nodes, late, sums, buffers)

        shares.walk(visit, lambda: _scratch(shares, z, heads, q), _key(z, heads, q))
        add_late_keys(shares.late_S2, late.late_k, late.late_v, grad_nodes.k, grad_nodes.v)
        grad_map_a, grad_map_b = (grad_map.sum(0).t().index_select(0, back_D) for grad_map in grad_maps)
        grads = (grad_q, grad_k, grad_v, grad_edge_a, grad_edge_b)
        grad_q, grad_k, grad_v, grad_edge_a, grad_edge_b = (x.index_select(1, back_D) for x in grads)
        return (
            None, None, None, None, None, grad_q, grad_k, grad_v, grad_map_a, grad_edge_a, grad_map_b, grad_edge_b
        )  # fmt: skip


def _shares(layout: PairLayout, z: Tensor, q: Tensor) -> Shares:
    """Return the chunks, whose products of matrices have the factors [R, F] and [F, D]."""
    return shares_of(layout, rows_of_chunks(layout, z.shape[1] * q.shape[1], CHUNK_ROWS))


def _given(layout: PairLayout, shares: Shares, tensors: tuple[Tensor, ...], mask: Mask) -> tuple[Any, ...]:
    """Return what both kernels read after the share."""
    z, rows, q, k, v, map_a, edge_a, map_b, edge_b = arrays(*tensors)
    ends = np.searchsorted(rows, np.append(shares.chunks_C4[:, 2], layout.num_pairs))
    maps = Maps(Map(map_a, edge_a), Map(map_b, edge_b))
    return shares.chunks_C4, layout.query_rows, rows, ends, NodeArrays(q, k, v), z, maps, mask


def _scratch(shares: Shares, z: Tensor, heads: int, q: Tensor) -> Scratch:
    dim = q.shape[1]
    a, b = (scratch(q, shares.max_rows, dim) for _ in range(2))
    return Scratch(a, b, scratch(q, z.shape[1], dim), scratch(q, shares.max_rows), scratch(q, heads), scratch(q, dim))


def _key(z: Tensor, heads: int, q: Tensor) -> tuple:
    return "CSA", z.shape[1], q.shape[1], heads, q.dtype
