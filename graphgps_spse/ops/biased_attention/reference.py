"""Attention with a bias and a gate for each pair in plain PyTorch: for any device and type, also under autocast."""

import torch
from torch import Tensor

from graphgps_spse.ops.biased_attention.contract import BiasedAttentionInput
from graphgps_spse.ops.dropout import draw_dropout_mask


def biased_attention(given: BiasedAttentionInput) -> Tensor:
    """Return y, [N, D], from the equations of contract.py."""
    blocks = given.blocks
    biases = blocks.pad_pairs(given.bias_PH)
    gates = [None] * len(biases) if given.gate_PH is None else blocks.pad_pairs(given.gate_PH)
    heads = blocks.heads(given.qkv_NW, given.num_heads)
    attended = [attend(*head, bias, gate, given.dropout_rate) for head, bias, gate in zip(heads, biases, gates)]
    return blocks.merge_heads(attended)


def attend(
    q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, bias: Tensor, gate: Tensor | None, dropout_rate: float
) -> Tensor:
    """Return y of one block, [graphs, H, size, D / H]; `bias` and `gate` are [graphs, H, size, size]."""
    score = torch.baddbmm(
        bias.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=q.shape[-1] ** -0.5
    ).view_as(bias)
    score = score if key_mask is None else score.masked_fill(~key_mask, -torch.inf)
    alpha = score.softmax(-1)
    alpha = alpha if gate is None else alpha * gate
    if dropout_rate:
        alpha = alpha * draw_dropout_mask(alpha.numel(), 1, dropout_rate, alpha).view_as(alpha)
    return alpha @ v
