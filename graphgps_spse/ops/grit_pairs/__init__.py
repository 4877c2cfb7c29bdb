"""GRIT's attention and update of pairs. contract.py defines input and output; `grit_pairs` is the reference."""

from graphgps_spse.ops.grit_pairs.contract import GritInput, GritOutput, PairStream, PairWeights
from graphgps_spse.ops.grit_pairs.reference import attention_weights, grit_pairs

__all__ = ["GritInput", "GritOutput", "PairStream", "PairWeights", "attention_weights", "grit_pairs"]
