"""CSA's attention. contract.py defines input and output; `chromatic_attention` is the reference."""

from graphgps_spse.ops.chromatic_attention.contract import ChromaticInput, PairMap
from graphgps_spse.ops.chromatic_attention.reference import attention_weights, chromatic_attention

__all__ = ["ChromaticInput", "PairMap", "attention_weights", "chromatic_attention"]
