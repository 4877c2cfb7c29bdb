"""Chromatic self-attention in plain PyTorch: for any device and type, also under autocast."""

import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.chromatic_attention.contract import ChromaticInput, PairMap
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.segments import widened


def chromatic_attention(given: ChromaticInput) -> Tensor:
    """Return y, [N, D], from the equations of contract.py."""
    layout, value_PD = given.layout, _mapped(given, given.value)
    alpha_PD = _exponentials(given)
    total_ND = layout.sum_keys(alpha_PD)
    if given.dropout_rate:
        alpha_PD = alpha_PD * draw_dropout_mask(layout.num_pairs, 1, given.dropout_rate, alpha_PD)
    return layout.sum_keys(alpha_PD * (layout.at_keys(given.v_ND) + value_PD)) / total_ND


def attention_weights(given: ChromaticInput) -> Tensor:
    """Return alpha, [P, D], before dropout: its sum over the keys of a query is 1 for each channel."""
    alpha_PD = _exponentials(given)
    return alpha_PD / given.layout.at_queries(given.layout.sum_keys(alpha_PD))


def _exponentials(given: ChromaticInput) -> Tensor:
    """Return the terms of the softmax, [P, D], which are not divided by their sum over keys yet."""
    layout, heads = given.layout, given.num_heads
    score_PD = _mapped(given, given.score)
    product_PD = layout.at_queries(given.q_ND) * layout.at_keys(given.k_ND)
    dot_PH = product_PD.unflatten(1, (-1, heads)).sum(1)
    score_PD = widened((score_PD.unflatten(1, (-1, heads)) + dot_PH.unsqueeze(1)).flatten(1))
    return (score_PD - layout.at_queries(layout.max_keys(score_PD.detach()))).exp()


def _mapped(given: ChromaticInput, pair_map: PairMap) -> Tensor:
    mapped_PD = F.linear(given.z_PC, pair_map.map_DC)
    return mapped_PD.index_add(0, given.rows_E, F.linear(given.raw_ER, pair_map.edge_DR).to(mapped_PD.dtype))
