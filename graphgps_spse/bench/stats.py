"""Means, deviations and tests over seeds."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy import stats


class Summary(NamedTuple):
    """Seeds of one cell of a table."""

    mean: float
    std: float
    """Sample standard deviation (ddof 1); nan for one seed."""
    n: int


def summarize(values: Sequence[float]) -> Summary:
    """Return mean, sample standard deviation and number of `values`."""
    std = statistics.stdev(values) if len(values) > 1 else float("nan")
    return Summary(statistics.fmean(values), std, len(values))


def student_t_test(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the p-value of the two-sided Student t-test of equal means, the paper's; None below 3 seeds a side."""
    if min(len(a), len(b)) < 3:
        return None
    return float(stats.ttest_ind(a, b, equal_var=True).pvalue)
