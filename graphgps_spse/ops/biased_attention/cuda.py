"""Attention with a bias and a gate for each pair by the Triton kernels of graph_attention, for CUDA devices."""

from torch import Tensor

from graphgps_spse.ops.biased_attention.contract import BiasedAttentionInput
from graphgps_spse.ops.graph_attention.cuda import key_tiles, ragged_attention, unsupported

__all__ = ["biased_attention", "key_tiles", "unsupported"]


def biased_attention(given: BiasedAttentionInput) -> Tensor:
    """Return y, [N, D], in float32, or in float64 for float64."""
    return ragged_attention(
        given.blocks, given.num_heads, given.qkv_NW, given.bias_PH, given.gate_PH, given.dropout_rate
    )
