"""f, which turns a count of paths into an encoding (paper, section 4)."""

from typing import Any

import numpy as np


def scale_counts(counts: Any, alpha: float, beta: float, n: int) -> np.ndarray:
    """Return f(counts) in float64: f(x) = alpha * g^n(x) + beta, g(x) = ln(1 + x) taken n times (paper, section 4)."""
    values = np.asarray(counts, dtype=np.float64)
    for _ in range(n):
        values = np.log1p(values)
    return alpha * values + beta


def scale_table(alpha: float, beta: float, n: int, size: int) -> np.ndarray:
    """Return f(0) .. f(size - 1) in float32, for looking up the counts that occur most."""
    return scale_counts(np.arange(size), alpha, beta, n).astype(np.float32)
