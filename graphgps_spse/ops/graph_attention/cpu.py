"""Attention among the nodes of each graph for the CPU: PyTorch's own without dropout, the reference with it.

With dropout, PyTorch's own takes twice the time of the reference on the CPU, mostly for its masks.
"""

import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.graph_attention import reference
from graphgps_spse.ops.graph_attention.contract import GraphAttentionInput


def unsupported(like: Tensor) -> str:
    """Return why this cannot work on tensors like `like`: it always can."""
    return ""


def graph_attention(given: GraphAttentionInput) -> Tensor:
    """Return y, [N, D]."""
    if given.dropout_rate:
        return reference.graph_attention(given)
    blocks = given.blocks.heads(given.qkv_NW, given.num_heads)
    attended = [F.scaled_dot_product_attention(q, k, v, attn_mask=mask) for q, k, v, mask in blocks]
    return given.blocks.merge_heads(attended)
