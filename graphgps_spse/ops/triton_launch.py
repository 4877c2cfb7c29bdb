"""Shared code of the Triton kernels of all operations: what they need, tiles of columns, sizes of tiles.

Triton is optional. Nothing here imports it; modules of kernels do, and those are imported at the first launch.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class HeadColumns(NamedTuple):
    """The columns of a row: `dim_head` by `num_heads`, and both rounded up to powers of two, as Triton needs."""

    dim_head: int
    num_heads: int
    padded_dim_head: int
    padded_num_heads: int

    @classmethod
    def of(cls, dim: int, num_heads: int) -> "HeadColumns":
        """Return the columns of rows of width `dim`."""
        return cls(dim // num_heads, num_heads, power_of_two(dim // num_heads), power_of_two(num_heads))

    @property
    def padded(self) -> int:
        """Number of values of a tile of columns."""
        return self.padded_dim_head * self.padded_num_heads


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def rows_for(columns: int, values: int) -> int:
    """Return how many rows of `columns` values a tile of about `values` has: a power of two, at least one."""
    return max(1, values // columns)


def unsupported(like: Tensor) -> str:
    """Return why Triton kernels cannot work on tensors like `like`, or an empty string."""
    if like.dtype not in DTYPES:
        return f"there is no kernel for {like.dtype}"
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton)"
    return ""


def launch_errors() -> tuple[type[Exception], ...]:
    """Return the errors of compiling or launching a kernel that are not RuntimeErrors; none without Triton."""
    if find_spec("triton") is None:
        return ()
    from triton.errors import TritonError

    return (TritonError,)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the type that kernels compute in: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32
