"""One GRIT layer's work on pairs in a single pass over them in each direction, for the CPU.

The same function of the same arguments as grit_attention.plain_layer, with a hand-written derivative. Passes over
[P, D] are what GRIT's time goes into. So the pairs are walked in chunks that stay in cache, a matrix product and a
compiled kernel at a time; u is read and the next u written once; and backward computes again what is cheap: only
u, the next u and the softmax weights are kept.
"""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.models.fused import arrays, linear
from graphgps_spse.models.grit_attention import PairOptions, PairResult, PairStream, PairWeights
from graphgps_spse.models.grit_kernels import kernels
from graphgps_spse.models.pairs import Chunk, PairLayout

CHUNK_ROWS = 2048


def fused_layer(
    stream: PairStream, q_ND: Tensor, k_ND: Tensor, v_ND: Tensor, weights: PairWeights, options: PairOptions
) -> PairResult:
    """Return one layer's results. CPU tensors of float32 or float64 only."""
    u_PD, scale_D, shift_D = stream
    map_WD, map_bias_W = weights.map_WD, weights.map_bias_W
    if scale_D is None or shift_D is None:
        scale_D, shift_D = u_PD.new_ones(u_PD.shape[1]), u_PD.new_zeros(u_PD.shape[1])
    else:  # the map of u that equals the map of e = u * scale + shift
        map_bias_W = map_bias_W + map_WD @ shift_D
        map_WD = map_WD * scale_D
    if weights.out_bias_D is not None:
        shift_D = shift_D + weights.out_bias_D
    tensors = (u_PD, scale_D, shift_D, map_WD, map_bias_W, weights.out_DD, weights.logit_D, q_ND, k_ND, v_ND)
    return PairResult(*_FusedLayer.apply(options, *(x if x is None else x.contiguous() for x in tensors)))


def compile_kernels(dim: int, num_heads: int, dtype: torch.dtype = torch.float32) -> float:
    """Compile the kernels for one shape, or load them from numba's cache, ahead of the first step; return seconds."""
    start = time.perf_counter()
    options = PairOptions(PairLayout((2,)), num_heads, clamp=1.0, keep_PH=None, keep_PD=None, statistics=True)
    u_PD, map_WD, q_ND = (torch.zeros(rows, dim, dtype=dtype, requires_grad=True) for rows in (4, 2 * dim, 2))
    weights = PairWeights(map_WD, map_WD[:, 0], map_WD[0], map_WD[:dim], map_WD[0])
    result = fused_layer(PairStream(u_PD), q_ND, q_ND, q_ND, weights, options)
    torch.stack([part.sum() for part in result if part is not None]).sum().backward()
    return time.perf_counter() - start


class _FusedLayer(torch.autograd.Function):
    """`map_w`, `map_b` act on u; `shift` includes O_e's bias; without `out_w` there is no next u.

    A chunk's matrix products run over its whole window, whose other rows are ignored or, for sums, zero.
    """

    @staticmethod
    def forward(
        ctx: Any, options: PairOptions, u: Tensor, scale: Tensor, shift: Tensor, map_w: Tensor, map_b: Tensor,
        out_w: Tensor | None, logit: Tensor, q: Tensor, k: Tensor, v: Tensor,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        (num_pairs, dim), heads, layout = u.shape, options.num_heads, options.layout
        kernel, chunks = kernels(dim // heads, heads), layout.chunks(CHUNK_ROWS)
        keep = u.new_ones(num_pairs, heads) if options.keep_PH is None else options.keep_PH
        alpha, value, pair = u.new_empty(num_pairs, heads), torch.empty_like(q), torch.empty_like(q)
        hat = u.new_zeros(chunks[0].rows, dim)
        u_next = None if out_w is None else torch.empty_like(u)
        mean, deviation = np.zeros(dim), np.zeros(dim)
        nodes, weights = arrays(q, k, v), arrays(logit, keep)
        results = arrays(alpha, hat, value, pair, *_scratch(u, dim, heads, heads))
        for chunk in chunks:
            wb = linear(chunk.of(u), map_w, map_b)
            kernel.attend(chunk, *layout.arrays, *nodes, wb.numpy(), *weights, options.clamp, *results)
            if out_w is not None and u_next is not None:
                mapped = linear(_dropped(hat, chunk, options.keep_PD), out_w)
                kernel.update(chunk, *arrays(mapped, u, scale, shift, u_next), mean, deviation)
        mean_D = var_D = None
        if u_next is not None and options.statistics:
            mean_D, var_D = (torch.from_numpy(x).to(u.dtype) for x in (mean, deviation / num_pairs))
        ctx.options = options
        saved = (u, scale, map_w, map_b, out_w, logit, q, k, v, keep, options.keep_PD, alpha, u_next, mean_D)
        ctx.save_for_backward(*saved)
        return value, pair, u_next, mean_D, var_D

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_value: Tensor, grad_pair: Tensor, grad_next: Tensor, grad_mean: Tensor, grad_var: Tensor
    ) -> tuple[Tensor | None, ...]:
        u, scale, map_w, map_b, out_w, logit, q, k, v, keep, keep_PD, alpha, u_next, mean = ctx.saved_tensors
        (num_pairs, dim), heads, layout = u.shape, ctx.options.num_heads, ctx.options.layout
        kernel, chunks = kernels(dim // heads, heads), layout.chunks(CHUNK_ROWS)
        hat, grad, grad_hat, grad_wb = (u.new_zeros(chunks[0].rows, width) for width in (dim, dim, dim, 2 * dim))
        grad_u, grad_q = torch.empty_like(u), torch.empty_like(q)
        grad_k, grad_v = torch.zeros_like(k), torch.zeros_like(v)
        by_chunk = [u.new_zeros(len(chunks), width) for width in (dim, dim, 2 * dim, dim)]
        grad_map_w, grad_out_w = torch.zeros_like(map_w), torch.zeros_like(map_w[:dim])
        slope = torch.zeros_like(scale) if mean is None else grad_var * (2 / num_pairs)
        offset = torch.zeros_like(scale) if mean is None else grad_mean / num_pairs - slope * mean
        nodes = arrays(q, k, v)
        inputs = arrays(logit, keep, alpha, grad_value.contiguous(), grad_pair.contiguous())
        update = [] if u_next is None else arrays(grad_next.contiguous(), u_next, offset, slope, u, grad)
        grads, residual = arrays(hat, grad_q, grad_k, grad_v, grad_wb), arrays(grad, scale, grad_u)
        scratch = arrays(*_scratch(u, dim, dim, dim, heads, heads), u.new_empty(max(layout.sizes), heads))
        for chunk, *sums in zip(chunks, *arrays(*by_chunk)):
            wb = linear(chunk.of(u), map_w, map_b)
            if u_next is not None:
                kernel.update_backward(chunk, *update, *sums[:2])
                chunk.clear_rest(grad)
                grad_hat = _dropped(linear(grad, out_w.t()), chunk, keep_PD)
            kernel.attend_backward(
                chunk, *layout.arrays, *nodes, wb.numpy(), *inputs, grad_hat.numpy(), *grads, *sums[2:], *scratch
            )
            chunk.clear_rest(grad_wb)
            grad_map_w += _weight_gradient(grad_wb, chunk.of(u))
            if u_next is not None:
                grad_out_w += _weight_gradient(grad, _dropped(hat, chunk, keep_PD))
            kernel.residual_backward(chunk, linear(grad_wb, map_w.t()).numpy(), *residual)
        grad_shift, grad_scale, grad_map_b, grad_logit = (sums_CD.sum(0) for sums_CD in by_chunk)
        grad_out = None if out_w is None else grad_out_w
        return (
            None, grad_u, grad_scale, grad_shift, grad_map_w, grad_map_b, grad_out, grad_logit, grad_q, grad_k, grad_v
        )  # fmt: skip


def _scratch(like: Tensor, *widths: int) -> list[Tensor]:
    return [like.new_empty(width) for width in widths]


def _dropped(x_RD: Tensor, chunk: Chunk, keep_PD: Tensor | None) -> Tensor:
    return x_RD if keep_PD is None else x_RD * chunk.of(keep_PD)


def _weight_gradient(grad_RW: Tensor, x_RD: Tensor) -> Tensor:
    """Return grad^T x, [W, D], as the transpose of a linear map of x^T."""
    return linear(x_RD.t(), grad_RW.t()).t()
