"""Dropout masks of Triton kernels, computed by NumPy from the definition of the generator, for comparison."""

from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor


def philox_words(seed: int, numbers: np.ndarray) -> np.ndarray:
    """Return the first word of Philox4x32-10 (Salmon et al. 2011, section 3.3) for each counter, uint32."""
    low = np.uint64(0xFFFFFFFF)
    multiplier_0, multiplier_1, key_step_0, key_step_1 = map(
        np.uint64, (0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85)
    )
    shift, numbers = np.uint64(32), numbers.astype(np.uint64)
    x = [numbers & low, numbers >> shift, np.zeros_like(numbers), np.zeros_like(numbers)]
    key_0, key_1 = np.uint64(seed) & low, np.uint64(seed) >> shift
    for _ in range(10):
        product_0, product_1 = multiplier_0 * x[0], multiplier_1 * x[2]
        x = [product_1 >> shift ^ x[1] ^ key_0, product_1 & low, product_0 >> shift ^ x[3] ^ key_1, product_0 & low]
        key_0, key_1 = key_0 + key_step_0 & low, key_1 + key_step_1 & low
    return x[0].astype(np.uint32)


def philox_mask(seed: Tensor, rows: int, columns: int, rate: float) -> Tensor:
    """Return the mask [rows, columns] of a seed, float64: entry (r, c) has number r * columns + c."""
    words = philox_words(int(seed), np.arange(rows * columns)).reshape(rows, columns)
    bound = round(rate * 2**32)
    return torch.from_numpy((words >= bound) * (2**32 / (2**32 - bound)))


def use_philox_masks(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Let modules that draw a mask take the one whose seed is its number of columns, in any floating-point type."""

    def mask(rows: int, columns: int, rate: float, like: Tensor) -> Tensor:
        return philox_mask(torch.tensor(columns), rows, columns, rate).to(like.dtype)

    for module in modules:
        monkeypatch.setattr(module, "draw_dropout_mask", mask)
