"""Attention among the nodes of each graph for CUDA devices: PyTorch's own, which draws its dropout mask itself."""

import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.graph_attention.contract import GraphAttentionInput


def unsupported(like: Tensor) -> str:
    """Return why this cannot work on tensors like `like`: it always can."""
    return ""


def graph_attention(given: GraphAttentionInput) -> Tensor:
    """Return y, [N, D]."""
    rate, blocks = given.dropout_rate, given.blocks.heads(given.qkv_NW, given.num_heads)
    attended = [F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=rate) for q, k, v, mask in blocks]
    return given.blocks.merge_heads(attended)
