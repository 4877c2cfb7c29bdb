"""Metrics of a split, by name: each is a function of all predictions and targets of one target.

A metric is a class in the registry `metrics`, and a plugin adds one in the same way:

    @metrics.register("within_one")
    class WithinOne(ValueMetric):
        "Share of predictions within 1 of the target."

        direction = "max"

        def compute(self, pred, y):
            return ((pred - y).abs() <= 1).double().mean()
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from graphgps_spse.registry import metrics
from graphgps_spse.training.metrics import area_under_precision

CALIBRATION_BINS = 15
"""Bins of equal width of the calibration error (Guo et al. 2017)."""


class Metric(ABC):
    """A score of one target over a split."""

    direction: ClassVar[str]
    """Which value is best: "min" or "max"."""
    of_classes: ClassVar[bool]
    """Whether predictions are log-probabilities of classes; otherwise they are values."""

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason if the score has no value for these targets, otherwise an empty text.

        `y` [R] holds the known targets, R >= 1, as in `compute`. `num_classes` is 0 for values.
        """
        return ""

    @abstractmethod
    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the score, a scalar, of the R rows whose target is known, R >= 1, on the CPU.

        Values: `pred` and `y` are [R] float64. Classes: `pred` is [R, C] float64, log-probabilities, and `y` is [R]
        int64. Called only where `why_undefined` gives no reason.
        """


class ValueMetric(Metric):
    """A metric of regression."""

    of_classes = False


class ClassMetric(Metric):
    """A metric of classification. For two classes f1, auc and ap are those of class 1, for more the mean of all."""

    of_classes = True


@metrics.register("mae")
class MeanAbsoluteError(ValueMetric):
    """Mean absolute error."""

    direction = "min"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return mean |pred - y|."""
        return (pred - y).abs().mean()


@metrics.register("mse")
class MeanSquaredError(ValueMetric):
    """Mean squared error."""

    direction = "min"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return mean (pred - y)²."""
        return (pred - y).square().mean()


@metrics.register("rmse")
class RootMeanSquaredError(ValueMetric):
    """Root of the mean squared error."""

    direction = "min"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the root of mean (pred - y)²."""
        return (pred - y).square().mean().sqrt()


@metrics.register("r2")
class R2(ValueMetric):
    """Coefficient of determination: 1 - mean squared error / variance of the targets."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where all targets are equal."""
        return _all_equal(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return R²."""
        return 1 - (pred - y).square().sum() / (y - y.mean()).square().sum()


@metrics.register("spearman")
class Spearman(ValueMetric):
    """Spearman's rank correlation; tied values share their mean rank."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where all targets are equal."""
        return _all_equal(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the correlation of ranks; 0 for predictions that are all equal."""
        if (pred == pred[0]).all():
            return torch.zeros((), dtype=torch.float64)
        a, b = (ranks - ranks.mean() for ranks in (_mean_ranks(pred), _mean_ranks(y)))
        return (a * b).sum() / (a.square().sum() * b.square().sum()).sqrt()


@metrics.register("accuracy")
class AccuracyOfClasses(ClassMetric):
    """Share of rows whose most likely class is right."""

    direction = "max"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the share."""
        return (_chosen(pred) == y).double().mean()


@metrics.register("balanced_accuracy")
class BalancedAccuracy(ClassMetric):
    """Mean recall of the classes that occur."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where one class occurs alone."""
        return _one_class(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the mean recall."""
        confusion = _confusion(pred, y)
        total = confusion.sum(1)
        return (confusion.diagonal() / total)[total > 0].mean()


@metrics.register("f1")
class F1(ClassMetric):
    """Harmonic mean of precision and recall; 0 for a class that is never predicted right."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where, of two classes, class 1 does not occur."""
        return "no target is of class 1" if num_classes == 2 and not (y == 1).any() else ""

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return F1 of class 1 for two classes, and the mean over classes that occur or are predicted for more."""
        confusion = _confusion(pred, y)
        right, size = confusion.diagonal(), confusion.sum(0) + confusion.sum(1)
        if pred.shape[1] == 2:
            return 2 * right[1] / size[1]
        return (2 * right / size)[size > 0].mean()


@metrics.register("mcc")
class MatthewsCorrelation(ClassMetric):
    """Matthews' correlation coefficient (Gorodkin 2004 for more than two classes)."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where one class occurs alone."""
        return _one_class(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the correlation; 0 where one class is predicted for all rows."""
        confusion = _confusion(pred, y)
        true, chosen, total = confusion.sum(1), confusion.sum(0), confusion.sum()
        covariance = confusion.trace() * total - (true * chosen).sum()
        variances = (total**2 - chosen.square().sum()) * (total**2 - true.square().sum())
        return covariance / variances.sqrt() if variances > 0 else torch.zeros((), dtype=torch.float64)


@metrics.register("cross_entropy")
class CrossEntropy(ClassMetric):
    """Mean negative log-probability of the right class, in nats."""

    direction = "min"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the mean."""
        return -pred.gather(1, y[:, None]).mean()


@metrics.register("calibration_error")
class CalibrationError(ClassMetric):
    """Expected calibration error: mean distance of confidence from accuracy over 15 bins (Guo et al. 2017)."""

    direction = "min"

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the sum over bins of (rows in the bin / R) |accuracy - mean confidence of the chosen class|."""
        confidence = pred.max(1).values.exp()
        right = (_chosen(pred) == y).double()
        index = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
        gap = torch.zeros(CALIBRATION_BINS, dtype=torch.float64).index_add_(0, index, right - confidence)
        return gap.abs().sum() / len(y)


@metrics.register("auc")
class RocAuc(ClassMetric):
    """Area under the ROC curve; one class against the rest for more than two."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where one class occurs alone."""
        return _one_class(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the area; ties count half."""
        return _mean_over_classes(_roc_auc, pred, y)


@metrics.register("ap")
class AveragePrecisionOfClasses(ClassMetric):
    """Average precision, as OGB computes it; one class against the rest for more than two."""

    direction = "max"

    def why_undefined(self, y: Tensor, num_classes: int) -> str:
        """Return the reason where one class occurs alone."""
        return _one_class(y)

    def compute(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the sum over distinct scores of (gain in recall) x precision."""
        return _mean_over_classes(area_under_precision, pred, y)


def _chosen(pred: Tensor) -> Tensor:
    return pred.argmax(1)


def _confusion(pred: Tensor, y: Tensor) -> Tensor:
    """Return [C, C] float64: rows of true class c that are predicted to be class d."""
    num_classes = pred.shape[1]
    return torch.bincount(y * num_classes + _chosen(pred), minlength=num_classes**2).view(num_classes, -1).double()


def _all_equal(y: Tensor) -> str:
    return "all targets are equal" if (y == y[0]).all() else ""


def _one_class(y: Tensor) -> str:
    return f"all targets are of class {int(y[0])}" if (y == y[0]).all() else ""


def _mean_over_classes(score: Callable[[Tensor, Tensor], Tensor], pred: Tensor, y: Tensor) -> Tensor:
    """Return the score of class 1 for two classes, otherwise the mean over the classes that occur."""
    if pred.shape[1] == 2:  # the difference is the logit, and remains distinct where a probability rounds to 1
        return score(pred[:, 1] - pred[:, 0], (y == 1).double())
    return torch.stack([score(pred[:, c], (y == c).double()) for c in y.unique().tolist()]).mean()


def _roc_auc(score: Tensor, is_positive: Tensor) -> Tensor:
    positives = is_positive.sum()
    negatives = len(score) - positives
    # Mann and Whitney: the rank sum of the positives, less its least value, over all pairs.
    return ((_mean_ranks(score) * is_positive).sum() - positives * (positives + 1) / 2) / (positives * negatives)


def _mean_ranks(values: Tensor) -> Tensor:
    """Return ranks from 1, ascending; equal values share the mean of their ranks."""
    _, index, count = torch.unique(values, return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    return (last - (count.double() - 1) / 2)[index]
