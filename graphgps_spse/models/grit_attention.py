"""GRIT's attention and pair update on packed pairs: in plain PyTorch, and fused for the CPU.

Both map the same arguments to the same results; `pair_layer` chooses. The pair features of a layer are not stored:
they are e = u * scale + shift, where u is what the previous layer left before its BatchNorm, and scale and shift are
that BatchNorm's. So a layer reads u once and writes the next u once. Columns are ordered (position in head, head).
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.models.grit_kernels import Kernels, kernels
from graphgps_spse.models.pairs import PairLayout

CHUNK_ROWS = 1024
"""Pair rows that the fused layer holds at a time: its temporaries stay within a core's cache."""


class PairStream(NamedTuple):
    """The features of all pairs, e = u * scale + shift; a None is no scale, no shift."""

    u_PD: Tensor
    scale_D: Tensor | None = None
    shift_D: Tensor | None = None


class PairWeights(NamedTuple):
    """One layer's weights on pairs; `w` is the first half of the rows of e's map, `b` the second."""

    map_WD: Tensor
    """[2D, D] of e to [w | b]."""
    map_bias_W: Tensor
    logit_D: Tensor
    """The vector that each head's e^ is multiplied with."""
    out_DD: Tensor | None
    """[D, D] of e^ to the pair update; None in the last layer, whose pair features nothing reads."""
    out_bias_D: Tensor | None


class PairResult(NamedTuple):
    """What a layer's pairs give: sums for nodes, the next u, and its column statistics (None if not asked for)."""

    value_ND: Tensor
    """sum_j alpha_ij v_j."""
    pair_ND: Tensor
    """sum_j alpha_ij e^_ij."""
    u_PD: Tensor | None
    mean_D: Tensor | None
    var_D: Tensor | None
    """Biased variance."""


class PairOptions(NamedTuple):
    """What shapes a layer's computation and is no tensor to differentiate."""

    layout: PairLayout
    num_heads: int
    clamp: float
    """Logits are clamped to [-clamp, clamp]; infinity for none."""
    keep_PH: Tensor | None
    """Dropout on attention weights: 0 or 1 / (1 - rate); None for none."""
    keep_PD: Tensor | None
    """Dropout on e^ before the pair update, likewise."""
    statistics: bool
    """Whether mean and variance of the next u are wanted."""


def has_kernels(x: Tensor) -> bool:
    """Whether the fused layer can work on tensors like x."""
    exact = x.dtype in (torch.float32, torch.float64)
    return x.device.type == "cpu" and exact and not torch.is_autocast_enabled("cpu")


def pair_layer(
    stream: PairStream, q_ND: Tensor, k_ND: Tensor, v_ND: Tensor, weights: PairWeights, options: PairOptions
) -> PairResult:
    """Return one layer's results; fused on the CPU, plain PyTorch elsewhere."""
    layer = fused_layer if has_kernels(q_ND) else plain_layer
    return layer(stream, q_ND, k_ND, v_ND, weights, options)


def plain_layer(
    stream: PairStream, q_ND: Tensor, k_ND: Tensor, v_ND: Tensor, weights: PairWeights, options: PairOptions
) -> PairResult:
    """One layer from the equations, differentiated by autograd; runs on any device and under autocast."""
    layout, heads = options.layout, options.num_heads
    e_PD = stream.u_PD if stream.scale_D is None else torch.addcmul(stream.shift_D, stream.u_PD, stream.scale_D)
    w_PD, b_PD = F.linear(e_PD, weights.map_WD, weights.map_bias_W).chunk(2, dim=1)
    s_PD = (layout.at_receivers(q_ND) + layout.at_senders(k_ND)) * w_PD
    hat_PD = F.relu(F.relu(s_PD).sqrt() - F.relu(-s_PD).sqrt() + b_PD)
    logit_PH = (hat_PD * weights.logit_D).unflatten(1, (-1, heads)).sum(1, dtype=torch.promote_types(hat_PD.dtype, torch.float32))
    logit_PH = logit_PH.clamp(-options.clamp, options.clamp)
    top_NH = layout.max_senders(logit_PH.detach())
    weight_PH = (logit_PH - layout.at_receivers(top_NH)).exp()
    weight_PH = weight_PH / layout.at_receivers(layout.sum_senders(weight_PH))
    weight_PH = weight_PH if options.keep_PH is None else weight_PH * options.keep_PH
    wide_PD = weight_PH.repeat(1, hat_PD.shape[1] // heads)
    value_ND = layout.sum_senders(wide_PD * layout.at_senders(v_ND))
    pair_ND = layout.sum_senders(wide_PD * hat_PD)
    if weights.out_DD is None:
        return PairResult(value_ND, pair_ND, None, None, None)
    kept_PD = hat_PD if options.keep_PD is None else hat_PD * options.keep_PD
    u_PD = e_PD + F.linear(kept_PD, weights.out_DD, weights.out_bias_D)
    var_D, mean_D = torch.var_mean(u_PD.float() if u_PD.dtype.itemsize < 4 else u_PD, 0, correction=0) if options.statistics else (None, None)
    return PairResult(value_ND, pair_ND, u_PD, mean_D, var_D)


def fused_layer(
    stream: PairStream, q_ND: Tensor, k_ND: Tensor, v_ND: Tensor, weights: PairWeights, options: PairOptions
) -> PairResult:
    """One layer in one pass over the pairs in each direction; recomputes cheap things instead of keeping them."""
    u_PD, scale_D, shift_D = stream
    map_WD, map_bias_W = weights.map_WD, weights.map_bias_W
    if scale_D is None or shift_D is None:
        scale_D, shift_D = u_PD.new_ones(u_PD.shape[1]), u_PD.new_zeros(u_PD.shape[1])
    else:
        map_bias_W = map_bias_W + map_WD @ shift_D
        map_WD = map_WD * scale_D
    if weights.out_bias_D is not None:
        shift_D = shift_D + weights.out_bias_D
    return PairResult(
        *_FusedLayer.apply(
            options, u_PD, scale_D, shift_D, map_WD, map_bias_W, weights.out_DD, weights.logit_D, q_ND, k_ND, v_ND
        )
    )


def _linear(x_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None = None) -> Tensor:
    """F.linear by oneDNN where it can: MKL, which PyTorch calls for float32, leaves AVX-512 unused on AMD."""
    if x_RD.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        return torch.ops.mkldnn._linear_pointwise(x_RD, weight_WD, bias_W, "none", [], "")
    return F.linear(x_RD, weight_WD, bias_W)


class _FusedLayer(torch.autograd.Function):
    """The fused layer; `map_WD` and its bias act on u (scale and shift folded in), `shift_D` includes O_e's bias."""

    @staticmethod
    def forward(
        ctx: Any, options: PairOptions, u: Tensor, scale: Tensor, shift: Tensor, map_w: Tensor, map_b: Tensor,
        out_w: Tensor | None, logit: Tensor, q: Tensor, k: Tensor, v: Tensor,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        layout, kernel = options.layout, kernels(u.shape[1] // options.num_heads, options.num_heads)
        chunks = layout.chunks(CHUNK_ROWS)
        alpha = u.new_empty(u.shape[0], options.num_heads)
        value, pair = torch.empty_like(q), torch.empty_like(q)
        rows = max(min(CHUNK_ROWS, u.shape[0]), max(c.stop - c.start for c in chunks))
        hat = u.new_zeros(rows, u.shape[1])
        out = None if out_w is None else torch.empty_like(u)
        mean, m2 = np.zeros(u.shape[1]), np.zeros(u.shape[1])
        keep = _array(options.keep_PH, u)
        for c in chunks:
            wb = _linear(u[c.start : c.start + max(CHUNK_ROWS, c.stop - c.start)], map_w, map_b)
            kernel.attend(
                c.first, c.last, layout.first_N, layout.size_N, layout.row_N, _array(q), _array(k), _array(v),
                _array(wb), _array(logit), keep, options.clamp, _array(alpha), _array(hat), _array(value), _array(pair),
            )  # fmt: skip
            if out is not None:
                kept = hat if options.keep_PD is None else hat[: c.stop - c.start] * options.keep_PD[c.start : c.stop]
                mapped = _linear(kept, out_w)
                kernel.update(
                    c.start, c.stop, _array(u), _array(scale), _array(shift), _array(mapped), _array(out),
                    c.start, mean, m2,
                )  # fmt: skip
        ctx.options = options
        ctx.mean = mean
        ctx.save_for_backward(u, scale, map_w, map_b, out_w, logit, q, k, v, alpha, out)
        if out is None or not options.statistics:
            return value, pair, out, None, None
        statistics = (torch.from_numpy(x).to(u.dtype) for x in (mean, m2 / u.shape[0]))
        return value, pair, out, *statistics

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_value: Tensor, grad_pair: Tensor, grad_out: Tensor, grad_mean: Tensor, grad_var: Tensor) -> tuple:
        u, scale, map_w, map_b, out_w, logit, q, k, v, alpha, out = ctx.saved_tensors
        options, layout = ctx.options, ctx.options.layout
        kernel = kernels(u.shape[1] // options.num_heads, options.num_heads)
        chunks = layout.chunks(CHUNK_ROWS)
        rows = max(min(CHUNK_ROWS, u.shape[0]), max(c.stop - c.start for c in chunks))
        hat, grad_wb, grad = u.new_zeros(rows, u.shape[1]), u.new_zeros(rows, 2 * u.shape[1]), u.new_zeros(rows, u.shape[1])
        grad_u, grad_q, grad_k, grad_v = torch.empty_like(u), torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_scale, grad_shift, grad_logit = torch.zeros_like(scale), torch.zeros_like(scale), torch.zeros_like(logit)
        grad_map_w, grad_map_b = torch.zeros_like(map_w), torch.zeros_like(map_b)
        grad_out_w = None if out_w is None else torch.zeros_like(out_w)
        grad_value, grad_pair = grad_value.contiguous(), grad_pair.contiguous()
        keep = _array(options.keep_PH, u)
        offset, slope = torch.zeros_like(scale), torch.zeros_like(scale)
        if out is not None:
            grad_out = grad_out.contiguous()
            if options.statistics:
                slope = grad_var * (2 / u.shape[0])
                offset = grad_mean / u.shape[0] - slope * torch.from_numpy(ctx.mean).to(u.dtype)
        out_t = None if out_w is None else out_w.t().contiguous()
        map_t = map_w.t().contiguous()
        grad_hat = u.new_zeros(rows if out is None else 0, u.shape[1])
        for c in chunks:
            n = c.stop - c.start
            wb = _linear(u[c.start : c.start + max(CHUNK_ROWS, c.stop - c.start)], map_w, map_b)
            if out is not None:
                kernel.update_backward(
                    c.start, c.stop, _array(grad_out), _array(out), _array(offset), _array(slope), _array(u),
                    _array(grad), _array(grad_shift), _array(grad_scale),
                )  # fmt: skip
                grad_hat = _linear(grad, out_t)
                if options.keep_PD is not None:
                    grad_hat[:n] *= options.keep_PD[c.start : c.stop]
            kernel.attend_backward(
                c.first, c.last, layout.first_N, layout.size_N, layout.row_N, _array(q), _array(k), _array(v),
                _array(wb), _array(logit), keep, _array(alpha), _array(grad_value), _array(grad_pair),
                _array(grad_hat), _array(hat), _array(grad_q), _array(grad_k), _array(grad_v), _array(grad_wb),
                _array(grad_map_b), _array(grad_logit),
            )  # fmt: skip
            grad_map_w.addmm_(grad_wb[:n].t(), u[c.start : c.stop])
            if out is None:
                grad_u[c.start : c.stop] = _linear(grad_wb, map_t)[:n]
                continue
            kept = hat[:n] if options.keep_PD is None else hat[:n] * options.keep_PD[c.start : c.stop]
            grad_out_w.addmm_(grad[:n].t(), kept)
            mapped = _linear(grad_wb, map_t)
            kernel.residual_backward(c.start, c.stop, _array(grad), _array(scale), _array(mapped), _array(grad_u))
        return (None, grad_u, grad_scale, grad_shift, grad_map_w, grad_map_b, grad_out_w, grad_logit, grad_q, grad_k, grad_v)


def _array(x: Tensor | None, like: Tensor | None = None) -> np.ndarray:
    """Return the tensor's memory as an array; for None an empty one of `like`'s type."""
    if x is None:
        return np.empty((0, 1), dtype=like.new_empty(0).numpy().dtype)
    return x.detach().numpy()
