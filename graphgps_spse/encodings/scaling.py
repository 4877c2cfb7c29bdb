"""Function f that turns a path count into an encoding (paper, section 4)."""

from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.errors import ConfigError, DataError, show

LARGEST_FLOAT32 = 3.4028234663852886e38
_MAX_FLOAT64 = 1.7976931348623157e308  # counts are float64

TABLE_SIZE = 1 << 16
"""Length of the lookup table of f. Integer counts below this limit are looked up."""


class Scaling(NamedTuple):
    """f(x) = alpha * g^n(x) + beta, where g(x) = ln(1 + x) is applied n times."""

    alpha: float
    beta: float
    n: int

    def of(self, counts: Any) -> np.ndarray:
        """Return f(counts) in float64."""
        return scale_counts(counts, *self)

    def table(self) -> np.ndarray:
        """Return f(0), f(1), .., f(TABLE_SIZE - 1) as float32."""
        return self.of(np.arange(TABLE_SIZE)).astype(np.float32)


def scale_counts(counts: Any, alpha: float, beta: float, n: int) -> np.ndarray:
    """Return f(counts) in float64."""
    values = np.asarray(counts, dtype=np.float64)
    for _ in range(n):
        values = np.log1p(values)
    return alpha * values + beta


def check_scaling(alpha: Any, beta: Any, n: int, *, prefix: str = "") -> None:
    """Raise ConfigError that names `prefix` and the option if f of a count can exceed float32.

    With n = 0 only counts up to 1 are checked here, because f grows with the count; `check_counts_fit` checks the rest.
    """
    numbers: dict[str, Any] = {"alpha": alpha, "beta": beta}
    for key, number in numbers.items():
        if type(number) is bool or not isinstance(number, int | float | np.number):
            raise ConfigError(f"{prefix}{key}: must be a number, got {number!r}")
        if not -LARGEST_FLOAT32 <= number <= LARGEST_FLOAT32:  # also rejects NaN
            raise ConfigError(f"{prefix}{key}: {show(number)} is outside the range of float32")
    largest = float(scale_counts(_MAX_FLOAT64 if n else 1.0, abs(alpha), abs(beta), n))
    if largest > LARGEST_FLOAT32:
        raise ConfigError(
            f"{prefix}alpha: f reaches {largest:.2g} with alpha {alpha:g}, beta {beta:g} and n {n}, which exceeds the "
            "range of float32"
        )


def check_counts_fit(values: np.ndarray, n: int, *, prefix: str = "") -> None:
    """Raise DataError if f of a count is not finite: beyond float32 with n = 0, else where the count is above 1e300."""
    if np.isfinite(values).all():
        return
    if n == 0:
        raise DataError(f"{prefix}n: with 0, f of some counts exceeds the range of float32; set it to 1 for logarithms")
    raise DataError(f"{prefix}max_length: some graph has more paths of one length than float64 can hold; lower it")
