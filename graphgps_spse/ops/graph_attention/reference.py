"""Attention among the nodes of each graph in plain PyTorch: for any device and type, also under autocast."""

import torch
from torch import Tensor

from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.graph_attention.contract import GraphAttentionInput
from graphgps_spse.ops.segments import widened


def graph_attention(given: GraphAttentionInput) -> Tensor:
    """Return y, [N, D], from the equations of contract.py."""
    blocks = given.blocks.heads(given.qkv_NW, given.num_heads)
    return given.blocks.merge_heads([attend(*block, given.dropout_rate) for block in blocks])


def attention_weights(given: GraphAttentionInput) -> Tensor:
    """Return alpha of all pairs, [P, H], before dropout: its sum over the keys of a query is 1 for each head."""
    sizes, rows = iter(given.blocks.sizes), []
    for q, k, _, key_mask in given.blocks.heads(given.qkv_NW, given.num_heads):
        for alpha_HNN in _softmax(q, k, key_mask):
            size = next(sizes)
            rows.append(alpha_HNN[:, :size, :size].flatten(1).t())
    return torch.cat(rows)


def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, dropout_rate: float) -> Tensor:
    """Return y of one block, [graphs, H, size, D / H]."""
    alpha = _softmax(q, k, key_mask)
    if dropout_rate:
        alpha = alpha * draw_dropout_mask(alpha.numel(), 1, dropout_rate, alpha).view_as(alpha)
    return alpha @ v


def _softmax(q: Tensor, k: Tensor, key_mask: Tensor | None) -> Tensor:
    """Return alpha of one block, [graphs, H, size, size]."""
    score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    score = score if key_mask is None else score.masked_fill_(~key_mask, -torch.inf)
    return widened(score).softmax(-1)
