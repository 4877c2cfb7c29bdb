"""GRIT's work on the pairs of one layer in plain PyTorch: for any device and type, also under autocast."""

import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.grit_pairs.contract import GritInput, GritOutput
from graphgps_spse.ops.segments import widened


def grit_pairs(given: GritInput) -> GritOutput:
    """Return one layer's output from the equations of contract.py."""
    layout, heads, weights = given.layout, given.num_heads, given.weights
    e_PD, h_PD = _features(given)
    alpha_PH = _softmax(given, h_PD)
    if given.attention_dropout_rate:
        alpha_PH = alpha_PH * draw_dropout_mask(layout.num_pairs, heads, given.attention_dropout_rate, alpha_PH)
    alpha_PD = alpha_PH.repeat(1, h_PD.shape[1] // heads)
    value_ND = layout.sum_keys(alpha_PD * layout.at_keys(given.v_ND))
    pair_ND = layout.sum_keys(alpha_PD * h_PD)
    if weights.out_DD is None:
        return GritOutput(value_ND, pair_ND, None, None, None)
    if given.pair_dropout_rate:
        h_PD = h_PD * draw_dropout_mask(layout.num_pairs, h_PD.shape[1], given.pair_dropout_rate, alpha_PH)
    u_PD = e_PD + F.linear(h_PD, weights.out_DD, weights.out_bias_D)
    if not given.with_statistics:
        return GritOutput(value_ND, pair_ND, u_PD, None, None)
    var_D, mean_D = torch.var_mean(widened(u_PD), dim=0, correction=0)
    return GritOutput(value_ND, pair_ND, u_PD, mean_D, var_D)


def attention_weights(given: GritInput) -> Tensor:
    """Return alpha, [P, H], before dropout: its sum over the keys of a query is 1 for each head."""
    return _softmax(given, _features(given)[1])


def _features(given: GritInput) -> tuple[Tensor, Tensor]:
    """Return the features e of all pairs and their hidden features h, [P, D] each."""
    layout, weights = given.layout, given.weights
    u_PD, scale_D, shift_D = given.pairs
    e_PD = u_PD if scale_D is None or shift_D is None else u_PD * scale_D + shift_D
    w_PD, b_PD = F.linear(e_PD, weights.map_WD, weights.map_bias_W).chunk(2, dim=1)
    s_PD = (layout.at_queries(given.q_ND) + layout.at_keys(given.k_ND)) * w_PD
    return e_PD, F.relu(F.relu(s_PD).sqrt() - F.relu(-s_PD).sqrt() + b_PD)


def _softmax(given: GritInput, h_PD: Tensor) -> Tensor:
    layout = given.layout
    logit_PH = widened(h_PD * given.weights.logit_D).unflatten(1, (-1, given.num_heads)).sum(1)
    logit_PH = logit_PH.clamp(-given.clamp, given.clamp)
    max_logit_NH = layout.max_keys(logit_PH.detach())
    alpha_PH = (logit_PH - layout.at_queries(max_logit_NH)).exp()
    return alpha_PH / layout.at_queries(layout.sum_keys(alpha_PH))
