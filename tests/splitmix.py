"""Dropout masks of the kernels for the CPU, computed by NumPy from the definition of the generator, for comparison."""

from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from graphgps_spse.ops.dropout import draw_dropout_seed


def splitmix_mask(seed: int, rows: int, columns: int, rate: float) -> Tensor:
    """Return the mask [rows, columns] of a seed, float64: entry (r, c) has number r * columns + c.

    The upper 32 bits of SplitMix64 (Steele, Lea and Flood 2014), as in java.util.SplittableRandom, decide about it.
    """
    x = np.uint64(seed) + np.arange(rows * columns, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    words = (x ^ (x >> np.uint64(31))) >> np.uint64(32)
    return torch.from_numpy(np.where(words < round(rate * 2**32), 0, 1 / (1 - rate)).reshape(rows, columns))


def drawn_mask(rows: int, columns: int, rate: float, like: Tensor) -> Tensor:
    """Return the mask of a seed that is drawn from torch's generator, as the kernels for the CPU draw it."""
    return splitmix_mask(int(draw_dropout_seed(1, torch.device("cpu"))), rows, columns, rate).to(like.dtype)


def use_splitmix_masks(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let modules in plain PyTorch take the masks that the kernels for the CPU take after the same `manual_seed`."""
    for module in modules:
        monkeypatch.setattr(module, "draw_dropout_mask", drawn_mask)
