"""Dropout within the kernels for the CPU: masks from a counter-based generator, computed where they are needed."""

from typing import NamedTuple

import numpy as np
import torch

from graphgps_spse.ops.dropout import draw_dropout_seed
from graphgps_spse.ops.numba_kernels import part
from graphgps_spse.random_bits import GOLDEN, mix_bits


class Mask(NamedTuple):
    """A dropout mask. Its entry n is 0 if 32 bits, which SplitMix64 makes of `seed` and n, are below `bound`."""

    seed: np.uint64
    bound: np.uint64
    """The rate times 2^32; 0 for no dropout."""
    kept: np.floating
    """The other entries, 1 / (1 - rate)."""


def new_mask(rate: float, dtype: torch.dtype) -> Mask:
    """Return a mask whose seed is drawn from torch's generator; nothing is drawn at rate 0."""
    seed = int(draw_dropout_seed(1, torch.device("cpu"))) if rate else 0
    kept = torch.empty((), dtype=dtype).numpy().dtype.type(1 / (1 - rate))
    return Mask(np.uint64(seed), np.uint64(round(rate * 2**32)), kept)


@part
def keeps(mask, number):
    """Return whether the entry of this number is not 0."""
    return mix_bits(mask.seed + np.uint64(number) * np.uint64(GOLDEN)) >> np.uint64(32) >= mask.bound


@part
def draw_mask(mask, number, step, width, entries):
    """Write the entries number, number + step ... of the mask to the first `width` of `entries`; 1 without dropout."""
    zero, one = entries.dtype.type(0), entries.dtype.type(1)
    if mask.bound:
        for i in range(width):
            entries[i] = mask.kept if keeps(mask, number + i * step) else zero
    else:
        for i in range(width):
            entries[i] = one


@part
def drop(mask, number, values):
    """Multiply values, [n], with the entries number, number + 1 ... of the mask."""
    if mask.bound:
        zero = values.dtype.type(0)
        for i in range(len(values)):
            values[i] *= mask.kept if keeps(mask, number + i) else zero
