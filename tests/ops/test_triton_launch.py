"""What Triton kernels need, and the sizes of their tiles."""

import importlib.util
from subprocess import CalledProcessError

import pytest
import torch

from graphgps_spse.ops import triton_launch
from graphgps_spse.ops.graph_attention import cuda as attention
from graphgps_spse.ops.triton_launch import HeadColumns, accumulator, power_of_two, rows_for


def test_columns_are_padded_to_powers_of_two():
    assert [power_of_two(n) for n in (1, 2, 3, 8, 13, 33)] == [1, 2, 4, 8, 16, 64]
    columns = HeadColumns.of(52, 4)
    assert columns == (13, 4, 16, 4) and columns.padded == 64
    assert rows_for(columns.padded, 1024) == 16 and rows_for(4096, 1024) == 1


def test_a_program_has_at_most_as_many_threads_as_a_gpu_runs():
    """For width 2,048, 64 warps would be 2,048 threads."""
    assert triton_launch.forward_tile(HeadColumns.of(256, 2)) == (4, 8)
    assert triton_launch.forward_tile(HeadColumns.of(2048, 2)) == (1, 32)
    assert [attention._warps(width) for width in (16, 64, 2048)] == [2, 4, 32]


def test_sums_of_narrow_types_are_in_float32():
    kept = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    assert [accumulator(dtype) for dtype in kept] == [torch.float32] * 3 + [torch.float64]


def test_registers_are_bounded_on_nvidia_gpus_alone(monkeypatch):
    """Triton refuses the option for AMD's GPUs."""
    options = attention._constants(torch.zeros(2, 8), torch.zeros(2, 2), 0.0)
    assert options["maxnreg"] == attention.MAX_REGISTERS
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert options.keys() - attention._constants(torch.zeros(2, 8), torch.zeros(2, 2), 0.0).keys() == {"maxnreg"}


def test_reasons_why_kernels_cannot_work(monkeypatch):
    assert triton_launch.unsupported(torch.zeros(1, dtype=torch.int64)) == "there is no kernel for torch.int64"
    monkeypatch.setattr(triton_launch, "find_spec", lambda name: importlib.util.find_spec("a_package_that_is_missing"))
    assert "Triton is not installed" in triton_launch.unsupported(torch.zeros(1))


def test_kernels_are_not_compiled_again_for_the_sizes_of_a_batch():
    """Triton compiles a kernel anew for integers that are 1 or multiples of 16, unless it is told not to."""
    pytest.importorskip("triton", reason="the kernels need Triton")
    from triton.runtime.jit import JITFunction

    from graphgps_spse.ops.chromatic_attention import triton_kernels as of_chromatic
    from graphgps_spse.ops.grit_pairs import triton_kernels as of_grit

    sizes = ("num_nodes", "num_pairs", "num_blocks", "num_rows", "num_merged")
    kernels = [k for m in (of_chromatic, of_grit) for k in vars(m).values() if hasattr(k, "arg_names")]
    assert sum(name in sizes for kernel in kernels for name in kernel.arg_names) == 8
    for kernel in kernels:
        compiled = JITFunction(kernel.fn, **kernel.kwargs)  # the tests interpret kernels
        assert [p.name for p in compiled.params if p.do_not_specialize] == [n for n in sizes if n in kernel.arg_names]


def test_errors_of_what_triton_runs_are_errors_of_a_launch(monkeypatch):
    """Without Python's header files the C compiler fails; without libcuda, an assertion; on a full disk, the cache."""
    pytest.importorskip("triton", reason="the errors are Triton's")
    for err in (RuntimeError(), CalledProcessError(1, "gcc"), AssertionError(), PermissionError(), ImportError()):
        assert isinstance(err, triton_launch.launch_errors())
    monkeypatch.setattr(triton_launch, "find_spec", lambda name: None)
    assert triton_launch.launch_errors() == (RuntimeError,)
