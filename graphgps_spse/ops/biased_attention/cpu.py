"""Attention with a bias and a gate for each pair by the compiled kernels of graph_attention, for the CPU."""

from torch import Tensor

from graphgps_spse.ops.biased_attention.contract import BiasedAttentionInput
from graphgps_spse.ops.graph_attention.cpu import attend_in_units, prepare, unsupported

__all__ = ["biased_attention", "prepare", "unsupported"]


def biased_attention(given: BiasedAttentionInput) -> Tensor:
    """Return y, [N, D]. CPU tensors of float32 or float64 only."""
    return attend_in_units(
        given.blocks, given.num_heads, given.qkv_NW, given.bias_PH, given.gate_PH, given.dropout_rate
    )
