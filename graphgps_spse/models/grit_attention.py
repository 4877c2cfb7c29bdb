"""GRIT's attention and pair update on packed pairs: what goes in and out, and the equations in plain PyTorch.

The pair features of a layer are not stored: they are e = u * scale + shift, where u is what the previous layer left
before its BatchNorm, and scale and shift are that BatchNorm's. Columns are ordered (position in head, head).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.models.pairs import PairLayout


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


def plain_layer(
    stream: PairStream, q_ND: Tensor, k_ND: Tensor, v_ND: Tensor, weights: PairWeights, options: PairOptions
) -> PairResult:
    """Return one layer's results from the equations of GRIT (Ma et al. 2023); for any device, also under autocast.

    s = (q_i + k_j) * w_ij; e^ = relu(sign(s) sqrt|s| + b_ij); alpha = softmax over j of the clamped <e^, a> by head.
    """
    layout, heads = options.layout, options.num_heads
    u_PD, scale_D, shift_D = stream
    e_PD = u_PD if scale_D is None or shift_D is None else u_PD * scale_D + shift_D
    w_PD, b_PD = F.linear(e_PD, weights.map_WD, weights.map_bias_W).chunk(2, dim=1)
    s_PD = (layout.at_receivers(q_ND) + layout.at_senders(k_ND)) * w_PD
    hat_PD = F.relu(F.relu(s_PD).sqrt() - F.relu(-s_PD).sqrt() + b_PD)
    logit_PH = _full(hat_PD * weights.logit_D).unflatten(1, (-1, heads)).sum(1)
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
    if not options.statistics:
        return PairResult(value_ND, pair_ND, u_PD, None, None)
    var_D, mean_D = torch.var_mean(_full(u_PD), dim=0, correction=0)
    return PairResult(value_ND, pair_ND, u_PD, mean_D, var_D)


def _full(x: Tensor) -> Tensor:
    """Widen half precision, in which long sums and exponentials lose too much."""
    return x.float() if x.dtype.itemsize < 4 else x
