"""What the fused layers of GRIT, CSA and GPS share: when they can work, how their kernels are compiled, dropout masks.

Kernels (*_kernels.py) are private and unvalidated. They are compiled for one head layout, so that inner loops have
constant lengths, and on the promise that no two of their arrays overlap, which lets those loops become vector code:
scratch memory is an argument for that reason. Not-a-number passes through: no flag below promises its absence.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.jit import kernel

FASTMATH = {"contract", "arcp", "nsz"}


def jit(function: Callable) -> Any:
    """Compile a kernel at its first call, one version for each floating point type, kept on disk."""
    return kernel(function, fastmath=FASTMATH, error_model="numpy", distinct_arrays=True)


def has_kernels(x: Tensor) -> bool:
    """Whether a fused layer can work on tensors like x; torch.compile cannot look into its kernels."""
    exact = x.dtype in (torch.float32, torch.float64)
    plain = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return x.device.type == "cpu" and exact and not plain


def arrays(*tensors: Tensor) -> list[np.ndarray]:
    """Return the tensors' memory as arrays."""
    return [tensor.detach().numpy() for tensor in tensors]


def draw_keep(rows: int, columns: int, rate: float, like: Tensor) -> Tensor:
    """Draw a dropout mask, 0 or 1 / (1 - rate), [rows, columns], from torch's generator."""
    return like.new_empty(rows, columns).uniform_().ge_(rate).mul_(1 / (1 - rate))


def linear(x_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None = None) -> Tensor:
    """F.linear, by oneDNN where that can: MKL, which PyTorch calls for float32, leaves AVX-512 unused on AMD."""
    # A private operation of PyTorch: where a build lacks it, MKL serves.
    has_onednn = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if has_onednn and x_RD.dtype == torch.float32:
        return torch.ops.mkldnn._linear_pointwise(x_RD, weight_WD, bias_W, "none", [], "")
    return F.linear(x_RD, weight_WD, bias_W)
