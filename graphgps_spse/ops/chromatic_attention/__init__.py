"""CSA's attention, whose scores and values pair features shift: contract.py says what goes in and out."""

from types import ModuleType

from torch import Tensor

from graphgps_spse.ops.chromatic_attention import reference
from graphgps_spse.ops.chromatic_attention.contract import AttentionInput, PairMap
from graphgps_spse.ops.dispatch import choose

__all__ = ["AttentionInput", "PairMap", "chromatic_attention", "prepare"]


def chromatic_attention(given: AttentionInput, *, kernels: str = "auto") -> Tensor:
    """Return y, [N, D], from the implementation that `kernels`, the device and the type select."""
    return choose(kernels, given.q_ND, reference, _fused_for).chromatic_attention(given)


def prepare(like: Tensor, num_heads: int, *, kernels: str = "auto") -> None:
    """Compile the kernels for nodes [*, D] like `like` ahead of the first step, or load them from a cache."""
    chosen = choose(kernels, like, reference, _fused_for)
    if chosen is not reference:
        chosen.prepare(like.shape[1], num_heads, like.dtype)


def _fused_for(device: str) -> ModuleType | None:
    if device == "cpu":
        from graphgps_spse.ops.chromatic_attention import cpu

        return cpu
    return None
