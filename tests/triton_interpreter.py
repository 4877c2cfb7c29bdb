"""Skips tests that run kernels in Triton's interpreter where it cannot run."""

import pytest

from graphgps_spse.gpu_kernels_on_cpu import why_no_interpreter


def need_interpreter() -> None:
    """Skip the test, or the module that calls this, without Triton or where its interpreter cannot run."""
    pytest.importorskip("triton", reason="the kernels need Triton")
    if reason := why_no_interpreter():
        pytest.skip(reason, allow_module_level=True)
