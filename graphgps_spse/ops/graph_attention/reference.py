"""Attention among the nodes of each graph in plain PyTorch: for any device and type, also under autocast."""

import torch
from torch import Tensor

from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.graph_attention.contract import GraphAttentionInput


def graph_attention(given: GraphAttentionInput) -> Tensor:
    """Return y, [N, D], from the equations of contract.py."""
    blocks = given.blocks.heads(given.qkv_NW, given.num_heads)
    return given.blocks.merge_heads([attend(*block, given.dropout_rate) for block in blocks])


def attend(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None, dropout_rate: float) -> Tensor:
    """Return y of one block, [graphs, H, size, D / H]."""
    score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    score = score if key_mask is None else score.masked_fill_(~key_mask, -torch.inf)
    alpha = score.softmax(-1)
    if dropout_rate:
        alpha = alpha * draw_dropout_mask(alpha.numel(), 1, dropout_rate, alpha).view_as(alpha)
    return alpha @ v
