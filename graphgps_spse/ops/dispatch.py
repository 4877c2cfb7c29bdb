"""Which implementation of an operation runs: the one choice by device, dtype and `train.kernels`."""

from collections.abc import Callable
from types import ModuleType

from torch import Tensor

from graphgps_spse.errors import ConfigError

KERNELS = ("auto", "plain", "fused")
"""Values of `train.kernels`.

auto: the kernels of the device where they can work, otherwise the reference. plain: the reference. fused: the kernels
of the device, or an error that says why they cannot work.
"""


def choose(
    kernels: str, like: Tensor, reference: ModuleType, fused_for: Callable[[str], ModuleType | None]
) -> ModuleType:
    """Return the implementation for tensors like `like`: a module with the functions of `reference`.

    `fused_for(device type)` returns the module for a type of device, or None; its `unsupported(like)` returns the
    reason why it cannot work, or an empty string. Raises ConfigError where `kernels` is fused and there is a reason.
    """
    if kernels == "plain":
        return reference
    device = like.device.type
    fused = fused_for(device)
    reason = f"there is no kernel for {device}" if fused is None else fused.unsupported(like)
    if fused is not None and not reason:
        return fused
    if kernels == "fused":
        operation = reference.__name__.split(".")[-2]
        raise ConfigError(f"train.kernels: fused, but for {operation} {reason}; set train.kernels to auto or plain")
    return reference
