"""Runs of consecutive rows of flat arrays, and their concatenation: how a batch is cut out of a split.

Arrays of the CPU are copied run by run. Arrays of another device are gathered there by row number: the numbers are made
on the device from the few starts and lengths, so nothing waits for the device. Both give the same bits.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor


class RowRuns:
    """The rows of some graphs in a flat array: run b is `count_B[b]` rows from `start_B[b]` on."""

    def __init__(self, start_B: np.ndarray, count_B: np.ndarray) -> None:
        """Take starts and lengths, [B] int64 each."""
        self.start_B, self.count_B, self.total = start_B, count_B, int(count_B.sum())

    @classmethod
    def of(cls, ptr: np.ndarray, index_B: np.ndarray) -> "RowRuns":
        """Return the rows of the graphs `index_B` in an array where graph g has rows ptr[g]:ptr[g + 1]."""
        start_B = ptr[index_B]
        return cls(start_B, ptr[index_B + 1] - start_B)

    @cached_property
    def first_B(self) -> np.ndarray:
        """The first row of each run in the concatenation, [B] int64."""
        return np.cumsum(self.count_B) - self.count_B

    def take(self, values: Tensor, dim: int = 0) -> Tensor:
        """Return the rows of all runs, one run after the other: `values.index_select(dim, rows)`, where dim is 0 or 1.

        In the second case the rows are columns: `values` is [R, rows of the array].
        """
        if not copies(values):
            return values.index_select(dim, self.rows(values.device))
        if dim == 0:
            taken = values.new_empty(self.total, *values.shape[1:])
            self._copy(values, taken)
            return taken
        taken = values.new_empty(len(values), self.total)
        for source, target in zip(values, taken):
            self._copy(source, target)
        return taken

    def repeat(self, values_B: np.ndarray, device: torch.device) -> Tensor:
        """Return the value of each run for each of its rows, [rows of all runs], on `device`."""
        if device.type == "cpu":
            return torch.from_numpy(np.repeat(values_B, self.count_B))
        both = torch.from_numpy(np.stack([values_B, self.count_B])).to(device, non_blocking=True)
        return both[0].repeat_interleave(both[1], output_size=self.total)

    def rows(self, device: torch.device) -> Tensor:
        """Return the number of each row in the flat array, [rows of all runs] int64, on `device`."""
        return self.repeat(self.start_B - self.first_B, device) + torch.arange(self.total, device=device)

    def _copy(self, source: Tensor, target: Tensor) -> None:
        rows, last_B = memory_of_tensor(source), self.start_B + self.count_B
        runs = [rows[first:last] for first, last in zip(self.start_B.tolist(), last_B.tolist())]
        if runs:
            np.concatenate(runs, out=memory_of_tensor(target))


def copies(values: Tensor) -> bool:
    """Return whether the runs of an array are copied rather than gathered by row number."""
    return values.device.type == "cpu"


def memory_of_tensor(values: Tensor) -> np.ndarray:
    """Return a tensor's memory as an array; NumPy has no bfloat16, whose bits are then those of an integer."""
    return (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()
