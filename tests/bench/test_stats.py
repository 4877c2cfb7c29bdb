"""Statistics against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from graphgps_spse.bench.stats import student_t_test, summarize


def test_by_hand():
    assert summarize([1.0, 2.0, 4.5]) == pytest.approx((2.5, math.sqrt((1.5**2 + 0.5**2 + 2**2) / 2), 3))
    assert math.isnan(summarize([1.0]).std)


def test_student_by_its_formula():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 10), rng.normal(0.8, 1, 7)
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2)
    t = (a.mean() - b.mean()) / math.sqrt(pooled * (1 / len(a) + 1 / len(b)))
    assert student_t_test(a.tolist(), b.tolist()) == pytest.approx(2 * stats.t.sf(abs(t), len(a) + len(b) - 2))
    assert student_t_test([1.0, 2.0], b.tolist()) is None
