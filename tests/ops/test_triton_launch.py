"""What Triton kernels need, and the sizes of their tiles."""

import importlib.util

import torch

from graphgps_spse.ops import triton_launch
from graphgps_spse.ops.triton_launch import HeadColumns, accumulator, power_of_two, rows_for


def test_columns_are_padded_to_powers_of_two():
    assert [power_of_two(n) for n in (1, 2, 3, 8, 13, 33)] == [1, 2, 4, 8, 16, 64]
    columns = HeadColumns.of(52, 4)
    assert columns == (13, 4, 16, 4) and columns.padded == 64
    assert rows_for(columns.padded, 1024) == 16 and rows_for(4096, 1024) == 1


def test_sums_of_narrow_types_are_in_float32():
    kept = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    assert [accumulator(dtype) for dtype in kept] == [torch.float32] * 3 + [torch.float64]


def test_reasons_why_kernels_cannot_work(monkeypatch):
    assert triton_launch.unsupported(torch.zeros(1, dtype=torch.int64)) == "there is no kernel for torch.int64"
    monkeypatch.setattr(triton_launch, "find_spec", lambda name: importlib.util.find_spec("a_package_that_is_missing"))
    assert "Triton is not installed" in triton_launch.unsupported(torch.zeros(1))
