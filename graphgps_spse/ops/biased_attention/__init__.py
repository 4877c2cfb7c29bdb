"""Attention with a bias and a gate for each pair of nodes. contract.py defines it; reference.py computes it."""

from graphgps_spse.ops.biased_attention.contract import BiasedAttentionInput
from graphgps_spse.ops.biased_attention.reference import attention_weights, biased_attention

__all__ = ["BiasedAttentionInput", "attention_weights", "biased_attention"]
