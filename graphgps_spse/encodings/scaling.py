"""f, which turns a count of paths into an encoding (paper, section 4)."""

from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.errors import ConfigError, DataError, show

_LARGEST = 3.4028234663852886e38  # of float32
_MOST_PATHS = 1.7976931348623157e308  # what float64 can count to

TABLE_SIZE = 1 << 16
"""Counts that are whole numbers below this are looked up."""


class Scaling(NamedTuple):
    """f(x) = alpha * g^n(x) + beta, where g(x) = ln(1 + x) is taken n times."""

    alpha: float
    beta: float
    n: int

    def of(self, counts: Any) -> np.ndarray:
        """Return f(counts) in float64."""
        return scale_counts(counts, *self)

    def table(self) -> np.ndarray:
        """Return f(0), f(1), .. in float32 for the counts that occur most, [TABLE_SIZE]."""
        return self.of(np.arange(TABLE_SIZE)).astype(np.float32)


def scale_counts(counts: Any, alpha: float, beta: float, n: int) -> np.ndarray:
    """Return f(counts) in float64."""
    values = np.asarray(counts, dtype=np.float64)
    for _ in range(n):
        values = np.log1p(values)
    return alpha * values + beta


def check_scaling(alpha: Any, beta: Any, n: int, *, prefix: str = "") -> None:
    """Raise ConfigError, naming the option after `prefix`, where f of a count does not fit into float32.

    With n = 0 no count above 1 is looked at; `check_counts_fit` does that when the counts are known.
    """
    numbers: dict[str, Any] = {"alpha": alpha, "beta": beta}
    for key, number in numbers.items():
        if type(number) is bool or not isinstance(number, int | float | np.number):
            raise ConfigError(f"{prefix}{key}: {number!r} is no number")
        if not -_LARGEST <= number <= _LARGEST:  # NaN is not, either
            raise ConfigError(f"{prefix}{key}: {show(number)} is beyond float32")
    largest = float(scale_counts(_MOST_PATHS if n else 1.0, abs(alpha), abs(beta), n))
    if largest > _LARGEST:
        raise ConfigError(
            f"{prefix}alpha: f reaches {largest:.2g} with alpha {alpha:g}, beta {beta:g} and n {n}, beyond float32"
        )


def check_counts_fit(values: np.ndarray, n: int, *, prefix: str = "") -> None:
    """Raise DataError where f of a count did not fit into float32, which happens with n = 0 alone."""
    if n == 0 and not np.isfinite(values).all():
        raise DataError(f"{prefix}n: 0 leaves counts as they are, and some are beyond float32; 1 takes their logarithm")
