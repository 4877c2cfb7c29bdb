"""Dropout masks and their seeds, drawn from torch's generator."""

import torch
from torch import Tensor


def draw_dropout_mask(rows: int, columns: int, rate: float, like: Tensor) -> Tensor:
    """Draw a mask from torch's generator, [rows, columns]: 0 with probability `rate`, otherwise 1 / (1 - rate).

    An array is dropped out by multiplying it with its mask. Type and device are those of `like`.
    """
    return like.new_empty(rows, columns).uniform_().ge_(rate).mul_(1 / (1 - rate))


def draw_dropout_seed(count: int, device: torch.device) -> Tensor:
    """Draw seeds of masks from torch's generator of the device, [count] int64, without waiting for the device.

    For kernels that compute each entry of a mask from its seed and its number instead of reading it.
    """
    return torch.randint(1 << 62, (count,), device=device)
