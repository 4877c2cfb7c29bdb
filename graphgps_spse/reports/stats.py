"""Means, deviations, tests and intervals over seeds.

Every deviation is a sample deviation (ddof 1), every test two-sided. Nothing is tested with fewer than three seeds on a
side. Equal constant scores differ with p = 1, different constant scores with p = 0 and an infinite effect.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scipy import optimize, stats

MIN_SEEDS = 3
LEVEL = 0.05
"""Where the paper's star begins: p <= LEVEL."""


class Summary(NamedTuple):
    """Seeds of one cell of a table."""

    mean: float
    std: float
    """Sample standard deviation (ddof 1); nan for one seed or none."""
    n: int


@dataclass(frozen=True)
class Comparison:
    """Two groups of scores, the second minus the first. Tests are None below three seeds a side."""

    difference: float
    n: tuple[int, int]
    student_p: float | None
    """Student's t-test of equal means, equal variances assumed: the paper's."""
    welch_p: float | None
    """Welch's t-test, which assumes no equal variances."""
    paired_p: float | None
    """Student's test of the differences seed by seed, over the seeds that both groups hold."""
    num_pairs: int
    hedges_g: float | None
    """Difference in pooled deviations, with the exact correction for small samples (Hedges 1981)."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the difference, Welch."""
    detectable_g: float | None
    """Effect, in pooled deviations, that Student's test finds with probability 0.8 at this number of seeds."""


def summarize(values: Sequence[float]) -> Summary:
    """Return mean, sample standard deviation and number of `values`; both are nan for none, or with inf or nan."""
    if not values or not all(map(math.isfinite, values)):
        return Summary(math.nan, math.nan, len(values))
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Summary(statistics.fmean(values), std, len(values))


def compare(first: Mapping[int, float], second: Mapping[int, float]) -> Comparison:
    """Compare two groups of finite scores, each by its seed."""
    a, b = list(first.values()), list(second.values())
    common = sorted(first.keys() & second.keys())
    before, after = summarize(a), summarize(b)
    tested = min(len(a), len(b)) >= MIN_SEEDS
    return Comparison(
        difference=after.mean - before.mean,
        n=(len(a), len(b)),
        student_p=t_test(before, after, equal_variances=True),
        welch_p=t_test(before, after, equal_variances=False),
        paired_p=paired_t_test([second[seed] - first[seed] for seed in common]),
        num_pairs=len(common),
        hedges_g=hedges_g(before, after) if tested else None,
        interval=welch_interval(before, after) if tested else None,
        detectable_g=detectable_effect(len(a), len(b)) if tested else None,
    )


def t_test(first: Summary, second: Summary, *, equal_variances: bool) -> float | None:
    """Return the p-value of equal means from means, sample deviations and numbers; None below three a side."""
    if min(first.n, second.n) < MIN_SEEDS:
        return None
    if _are_constant(first, second):
        return 1.0 if first.mean == second.mean else 0.0
    return float(stats.ttest_ind_from_stats(*first, *second, equal_var=equal_variances).pvalue)


def paired_t_test(differences: Sequence[float]) -> float | None:
    """Return the p-value of a mean difference of zero; None for fewer than three."""
    if len(differences) < MIN_SEEDS:
        return None
    mean, std, n = summarize(differences)
    if std == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / (std / math.sqrt(n)), n - 1))


def pooled_deviation(first: Summary, second: Summary) -> float:
    """Return the deviation that Student's test assumes both groups to have."""
    squares = (first.n - 1) * first.std**2 + (second.n - 1) * second.std**2
    return math.sqrt(squares / (first.n + second.n - 2))


def hedges_g(first: Summary, second: Summary) -> float:
    """Return the difference second - first in pooled deviations, without the bias of small samples."""
    difference, pooled = second.mean - first.mean, pooled_deviation(first, second)
    if pooled == 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    freedom = first.n + second.n - 2
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    return correction * difference / pooled


def welch_interval(first: Summary, second: Summary, confidence: float = 0.95) -> tuple[float, float]:
    """Return the confidence interval of second - first without assuming equal variances."""
    difference = second.mean - first.mean
    error, freedom = _standard_error(first, second)
    if error == 0:
        return difference, difference
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    return difference - half, difference + half


def agreement(measured: Summary, expected: Summary) -> tuple[float, float] | None:
    """Return how far `measured` is from `expected`, and the p-value of so much or more by chance.

    z = (mean - mean') / sqrt(std^2 / n + std'^2 / n'), the errors of both means. At few seeds z is no normal variable:
    p is Welch's, of Student's distribution with Satterthwaite's degrees of freedom. None below three seeds on
    a side: of two, hardly any difference could be told from chance, and what is far off would seem to agree.
    """
    if min(measured.n, expected.n) < MIN_SEEDS:
        return None
    difference = measured.mean - expected.mean
    error, freedom = _standard_error(measured, expected)
    if error == 0:
        return (0.0, 1.0) if difference == 0 else (math.copysign(math.inf, difference), 0.0)
    z = difference / error
    return z, float(2 * stats.t.sf(abs(z), freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for as many tests (Holm 1979): below LEVEL, the chance of any false one is below it."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def detectable_effect(n_first: int, n_second: int, power: float = 0.8, level: float = LEVEL) -> float:
    """Return the true difference, in deviations, that Student's test finds, with its sign, with probability `power`."""
    freedom, scale = n_first + n_second - 2, math.sqrt(n_first * n_second / (n_first + n_second))
    critical = stats.t.ppf(1 - level / 2, freedom)

    def missing_power(effect: float) -> float:
        return float(stats.nct.sf(critical, freedom, effect * scale)) - power

    highest = 1.0
    while missing_power(highest) < 0:
        highest *= 1.5
    return float(optimize.brentq(missing_power, 0.0, highest))


def _are_constant(*groups: Summary) -> bool:
    """Whether no group has a deviation, or only some whose fourth power, which degrees of freedom need, is zero."""
    return max(group.std for group in groups) ** 4 == 0


def _standard_error(first: Summary, second: Summary) -> tuple[float, float]:
    """Return the standard error of a difference of means, and its degrees of freedom (Welch and Satterthwaite)."""
    if _are_constant(first, second):
        return 0.0, math.inf
    parts = [group.std**2 / group.n for group in (first, second)]
    freedom = sum(parts) ** 2 / sum(part**2 / (group.n - 1) for part, group in zip(parts, (first, second)))
    return math.sqrt(sum(parts)), freedom
