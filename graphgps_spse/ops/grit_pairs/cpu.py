"""GRIT's work on the pairs of one layer in a single pass over them in each direction, for the CPU.

The same function as reference.py, with a derivative written by hand. Passes over [P, D] are what GRIT's time goes into.
So the pairs are walked in chunks that stay in cache, a matrix product and a compiled kernel at a time; u is read and
the next u written once; and backward computes again what is cheap.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.ops.chunks import Chunk, cut_into_chunks
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.grit_pairs import cpu_kernels
from graphgps_spse.ops.grit_pairs.contract import GritInput, GritOutput, PairStream, PairWeights
from graphgps_spse.ops.numba_kernels import NodeArrays, arrays, linear, unsupported
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.ops.threads import Visit, shares_walk, walk

__all__ = ["grit_pairs", "prepare", "unsupported"]

CHUNK_ROWS = 2048


def grit_pairs(given: GritInput) -> GritOutput:
    """Return one layer's output. CPU tensors of float32 or float64 only.

    A chunk's matrix products run over its whole window, whose other rows are ignored.
    """
    layout, heads, weights = given.layout, given.num_heads, given.weights
    u, scale, shift = given.pairs
    map_w, map_b = weights.map_WD, weights.map_bias_W
    if scale is None or shift is None:
        scale, shift = u.new_ones(u.shape[1]), u.new_zeros(u.shape[1])
    else:  # the map of u that equals the map of e = u * scale + shift
        map_b = map_b + map_w @ shift
        map_w = map_w * scale
    if weights.out_bias_D is not None:
        shift = shift + weights.out_bias_D
    tensors = (u, scale, shift, map_w, map_b, weights.logit_D, given.q_ND, given.k_ND, given.v_ND)
    u, scale, shift, map_w, map_b, logit, q, k, v = (x.contiguous() for x in tensors)
    out_w = None if weights.out_DD is None else weights.out_DD.contiguous()
    with torch.no_grad():  # _Derivative has the derivative
        (num_pairs, dim), rate, pair_rate = u.shape, given.attention_dropout_rate, given.pair_dropout_rate
        mask = draw_dropout_mask(num_pairs, heads, rate, u) if rate else u.new_ones(num_pairs, heads)
        pair_mask = draw_dropout_mask(num_pairs, dim, pair_rate, u) if pair_rate else None
        kernel, windows = cpu_kernels.grit_kernels(dim // heads, heads), cut_into_chunks(layout, CHUNK_ROWS)
        alpha, clamped = u.new_empty(num_pairs, heads), torch.empty(num_pairs, heads, dtype=torch.bool)
        value, pair = torch.empty_like(q), torch.empty_like(q)
        u_next = None if out_w is None else torch.empty_like(u)
        moments = arrays(*(u.new_zeros(len(windows), dim) for _ in range(2)))
        nodes, attention = NodeArrays(*arrays(q, k, v)), cpu_kernels.Attention(*arrays(alpha, clamped, mask))
        sums, (logit_array,) = cpu_kernels.Sums(*arrays(value, pair)), arrays(logit)

        def start() -> Visit[Chunk]:
            scratch, hidden = cpu_kernels.ForwardScratch(*_empty(u, dim, heads, heads, heads)), _zeros(u, windows, dim)

            def visit(number: int, chunk: Chunk) -> None:
                wb = linear(chunk.of(u), map_w, map_b).numpy()
                kernel.attend(
                    chunk, layout.query_rows, nodes, wb, logit_array, given.clamp, attention, hidden.numpy(), sums,
                    scratch,
                )  # fmt: skip
                if out_w is not None and u_next is not None:
                    mapped = linear(_dropped(hidden, chunk, pair_mask), out_w)
                    own_moments = (moments[0][number], moments[1][number])
                    kernel.update(chunk, *arrays(mapped, u, scale, shift, u_next), *own_moments)

            return visit

        walk(windows, start)
        mean_D = var_D = None
        if u_next is not None and given.with_statistics:
            mean, squares = np.zeros(dim), np.zeros(dim)
            for chunk, local, square in zip(windows, *moments):
                kernel.add_moments(chunk, local, square, mean, squares)
            mean_D, var_D = (torch.from_numpy(x).to(u.dtype) for x in (mean, squares / num_pairs))
    computed = _Computed(layout, heads, (mask, pair_mask, alpha, clamped), (value, pair, u_next, mean_D, var_D))
    return GritOutput(*_Derivative.apply(computed, u, scale, shift, map_w, map_b, out_w, logit, q, k, v))


def prepare(dim: int, num_heads: int, dtype: torch.dtype) -> None:
    """Compile the kernels for one shape, or load them from numba's cache."""
    u_PD, map_WD, q_ND = (torch.zeros(rows, dim, dtype=dtype, requires_grad=True) for rows in (4, 2 * dim, 2))
    weights = PairWeights(map_WD, map_WD[:, 0], map_WD[0], map_WD[:dim], map_WD[0])
    pairs, layout = PairStream(u_PD), PairLayout((2,))
    given = GritInput(layout, num_heads, pairs, q_ND, q_ND, q_ND, weights, 1.0, 0.0, 0.0, with_statistics=True)
    torch.stack([part.sum() for part in grit_pairs(given) if part is not None]).sum().backward()


class _Computed(NamedTuple):
    """What the forward pass has computed, for backward."""

    layout: PairLayout
    num_heads: int
    kept: tuple[Tensor | None, ...]
    """Dropout masks of attention weights and of hidden features, alpha, and which logits were clamped."""
    outputs: tuple[Tensor | None, ...]
    """Fields of GritOutput."""


class _Derivative(torch.autograd.Function):
    """Gives the outputs of `grit_pairs` their derivative.

    `map_w` and `map_b` act on u; `shift` includes the bias of `out_w`, without which there is no next u. A chunk's
    matrix products run over its whole window, whose other rows are ignored or, for sums, zero.
    """

    @staticmethod
    def forward(ctx: Any, computed: _Computed, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.layout, ctx.num_heads = computed.layout, computed.num_heads
        ctx.save_for_backward(*inputs, *computed.kept, *computed.outputs[2:4])
        return computed.outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_value: Tensor, grad_pair: Tensor, grad_next: Tensor, grad_mean: Tensor, grad_var: Tensor
    ) -> tuple[Tensor | None, ...]:
        (
            u, scale, _, map_w, map_b, out_w, logit, q, k, v, mask, pair_mask, alpha, clamped, u_next, mean
        ) = ctx.saved_tensors  # fmt: skip
        (num_pairs, dim), heads, layout = u.shape, ctx.num_heads, ctx.layout
        windows = cut_into_chunks(layout, CHUNK_ROWS)
        is_shared = shares_walk(windows)
        kernel = cpu_kernels.grit_kernels(dim // heads, heads, is_shared)
        grad_u, grad_q = torch.empty_like(u), torch.empty_like(q)
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        by_chunk = [u.new_zeros(len(windows), width) for width in (dim, dim, 2 * dim, dim)]
        grad_map_w, grad_out_w = torch.zeros_like(map_w), torch.zeros_like(map_w[:dim])
        slope = torch.zeros_like(scale) if mean is None else grad_var * (2 / num_pairs)
        offset = torch.zeros_like(scale) if mean is None else grad_mean / num_pairs - slope * mean
        nodes, grad_nodes = NodeArrays(*arrays(q, k, v)), NodeArrays(*arrays(grad_q, grad_k, grad_v))
        attention = cpu_kernels.Attention(*arrays(alpha, clamped, mask))
        grad_sums = cpu_kernels.Sums(*arrays(grad_value.contiguous(), grad_pair.contiguous()))
        if u_next is not None:
            update = cpu_kernels.Update(*arrays(grad_next.contiguous(), u_next, offset, slope))
        logit_array, u_array, scale_array, grad_u_array, *sums = arrays(logit, u, scale, grad_u, *by_chunk)

        def start() -> Visit[Chunk]:
            hidden, grad, no_grad, late, grad_wb = (
                _zeros(u, windows, width) for width in (dim, dim, dim, dim, 2 * dim)
            )
            hidden_array, grad_array, late_array, grad_wb_array = arrays(hidden, grad, late, grad_wb)
            scratch = cpu_kernels.BackwardScratch(
                *_empty(u, dim, dim, dim, heads, heads), *arrays(u.new_empty(max(layout.sizes), heads))
            )

            def visit(number: int, chunk: Chunk) -> Callable[[], None]:
                grad_shift, grad_scale, *grad_weights = (sum_CD[number] for sum_CD in sums)
                wb, grad_hidden = linear(chunk.of(u), map_w, map_b).numpy(), no_grad
                if u_next is not None:
                    kernel.update_backward(chunk, update, u_array, grad_array, grad_shift, grad_scale)
                    chunk.clear_rest(grad)
                    grad_hidden = _dropped(linear(grad, out_w.t()), chunk, pair_mask)
                kernel.attend_backward(
                    chunk, layout.query_rows, nodes, wb, logit_array, attention, grad_sums, grad_hidden.numpy(),
                    hidden_array, grad_nodes, grad_wb_array, cpu_kernels.WeightGradients(*grad_weights), late_array,
                    scratch,
                )  # fmt: skip
                chunk.clear_rest(grad_wb)
                grad_map = _weight_gradient(grad_wb, chunk.of(u))
                grad_out = None if u_next is None else _weight_gradient(grad, _dropped(hidden, chunk, pair_mask))
                mapped = linear(grad_wb, map_w.t()).numpy()
                kernel.residual_backward(chunk, mapped, grad_array, scale_array, grad_u_array)

                def add() -> None:
                    if is_shared:
                        kernel.add_late_keys(
                            chunk, layout.query_rows, attention, grad_sums.value, late_array, grad_nodes.k,
                            grad_nodes.v, scratch.weight,
                        )  # fmt: skip
                    grad_map_w.add_(grad_map)
                    if grad_out is not None:
                        grad_out_w.add_(grad_out)

                return add

            return visit

        walk(windows, start)
        grad_shift, grad_scale, grad_map_b, grad_logit = (sums_CD.sum(0) for sums_CD in by_chunk)
        grad_out = None if out_w is None else grad_out_w
        first = (None, grad_u, grad_scale, grad_shift, grad_map_w, grad_map_b, grad_out)
        return *first, grad_logit, grad_q, grad_k, grad_v


def _empty(like: Tensor, *widths: int) -> list[np.ndarray]:
    return arrays(*(like.new_empty(width) for width in widths))


def _zeros(like: Tensor, windows: list[Chunk], width: int) -> Tensor:
    return like.new_zeros(windows[0].rows, width)


def _dropped(x_RD: Tensor, chunk: Chunk, mask_PD: Tensor | None) -> Tensor:
    return x_RD if mask_PD is None else x_RD * chunk.of(mask_PD)


def _weight_gradient(grad_RW: Tensor, x_RD: Tensor) -> Tensor:
    """Return grad^T x, [W, D], as the transpose of a linear map of x^T."""
    return linear(x_RD.t(), grad_RW.t()).t()
