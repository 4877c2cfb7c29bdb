"""Shared code of the CPU kernels of all operations: compilation, supported input, matrix products.

Kernels (cpu_kernels.py of an operation) are private and unvalidated. They are compiled for one head layout, so that
inner loops have constant lengths. Callers guarantee that no two array arguments overlap, so that loops can be
vectorised; scratch buffers are arguments for the same reason. NaN propagates: no compiler flag excludes it.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.jit import kernel

FASTMATH = {"contract", "arcp", "nsz"}


class NodeArrays(NamedTuple):
    """Queries, keys and values, or their gradients: [N, D] each.

    All kernels share this class: numba confuses argument types of the same name and fields, which makes calls slow.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def jit(function: Callable) -> Any:
    """Compile a kernel at its first call, one version for each floating point type, kept on disk."""
    return kernel(function, fastmath=FASTMATH, error_model="numpy", distinct_arrays=True)


def unsupported(like: Tensor) -> str:
    """Return why compiled kernels cannot work on tensors like `like`, or an empty string."""
    if like.dtype not in (torch.float32, torch.float64):
        return f"there is no kernel for {like.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "there is no kernel for automatic mixed precision"
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into the kernels"
    return ""


def arrays(*tensors: Tensor) -> list[np.ndarray]:
    """Return the tensors' memory as arrays."""
    return [tensor.detach().numpy() for tensor in tensors]


def linear(x_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None = None) -> Tensor:
    """F.linear, by oneDNN where that can: MKL, which PyTorch calls for float32, leaves AVX-512 unused on AMD."""
    if x_RD.dtype == torch.float32 and _has_onednn():
        return torch.ops.mkldnn._linear_pointwise(x_RD, weight_WD, bias_W, "none", [], "")
    return F.linear(x_RD, weight_WD, bias_W)


@cache  # not asked again for each chunk of each layer
def _has_onednn() -> bool:
    """Whether this build of PyTorch has oneDNN and its private operation; where it has not, MKL serves."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
