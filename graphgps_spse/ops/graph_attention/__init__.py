"""Multi-head attention among the nodes of each graph: contract.py says what goes in and out."""

from types import ModuleType

from torch import Tensor

from graphgps_spse.ops.dispatch import choose
from graphgps_spse.ops.graph_attention import reference
from graphgps_spse.ops.graph_attention.contract import AttentionInput
from graphgps_spse.ops.graph_attention.node_blocks import NodeBlocks

__all__ = ["AttentionInput", "NodeBlocks", "graph_attention", "prepare"]


def graph_attention(given: AttentionInput, *, kernels: str = "auto") -> Tensor:
    """Return y, [N, D], from the implementation that `kernels`, the device and the type select."""
    return choose(kernels, given.qkv_NW, reference, _fused_for).graph_attention(given)


def prepare(like: Tensor, *, kernels: str = "auto") -> None:
    """Raise ConfigError where `kernels` cannot be had for tensors like `like`; there is nothing to compile."""
    choose(kernels, like, reference, _fused_for)


def _fused_for(device: str) -> ModuleType | None:
    if device == "cpu":
        from graphgps_spse.ops.graph_attention import cpu

        return cpu
    if device == "cuda":
        from graphgps_spse.ops.graph_attention import cuda

        return cuda
    return None
