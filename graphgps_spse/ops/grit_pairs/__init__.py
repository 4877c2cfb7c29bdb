"""GRIT's attention and update of pairs: contract.py says what goes in and out."""

from types import ModuleType

from torch import Tensor

from graphgps_spse.ops.dispatch import choose
from graphgps_spse.ops.grit_pairs import reference
from graphgps_spse.ops.grit_pairs.contract import PairInput, PairOutput, PairStream, PairWeights

__all__ = ["PairInput", "PairOutput", "PairStream", "PairWeights", "grit_pairs", "prepare"]


def grit_pairs(given: PairInput, *, kernels: str = "auto") -> PairOutput:
    """Return one layer's output from the implementation that `kernels`, the device and the type select."""
    return choose(kernels, given.q_ND, reference, _fused_for).grit_pairs(given)


def prepare(like: Tensor, num_heads: int, *, kernels: str = "auto") -> None:
    """Compile the kernels for nodes [*, D] like `like` ahead of the first step, or load them from a cache."""
    chosen = choose(kernels, like, reference, _fused_for)
    if chosen is not reference:
        chosen.prepare(like.shape[1], num_heads, like.dtype)


def _fused_for(device: str) -> ModuleType | None:
    if device == "cpu":
        from graphgps_spse.ops.grit_pairs import cpu

        return cpu
    return None
