"""Tasks: output width, loss and metrics of a kind of targets, and the metric that picks the best epoch."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from graphgps_spse.data.base import DatasetSpec
from graphgps_spse.errors import ConfigError
from graphgps_spse.options import Options, option
from graphgps_spse.registry import nearest, tasks
from graphgps_spse.training.metrics import (
    DIRECTIONS,
    Accumulator,
    Accuracy,
    AveragePrecision,
    RegressionErrors,
    TargetAccuracy,
)


class LossOptions(Options, section="model"):
    """The loss."""

    loss_fun: str = option("auto", "name of the loss; auto: the benchmark's")


class MetricOptions(Options, section=""):
    """The choice of the best epoch."""

    metric_best: str = option("auto", "metric that picks the best validation epoch; auto: the benchmark's")


class Task(ABC):
    """A kind of targets. A loss is the mean over the rows of a batch: graphs, or nodes if targets belong to nodes."""

    losses: ClassVar[tuple[str, ...]]
    """Values of `model.loss_fun`. The first is the loss of the benchmark, which `auto` selects."""
    directions: ClassVar[dict[str, str]] = DIRECTIONS
    """Metric -> "min" or "max", which is best. A task with a new metric extends the mapping of its base class."""

    def __init__(self, spec: DatasetSpec, *, loss_fun: str = "auto", metric: str = "auto") -> None:
        self.spec = spec
        self.loss_fun = self.losses[0] if loss_fun == "auto" else loss_fun
        self.metric = spec.metric if metric == "auto" else metric
        if self.loss_fun not in self.losses:
            known = ", ".join(("auto", *self.losses))
            raise ConfigError(f"model.loss_fun: '{loss_fun}' is no loss of {spec.name} ({spec.task}); it has {known}")
        if self.metric not in self.metric_names:
            known = ", ".join(("auto", *self.metric_names))
            near = nearest(self.metric, list(self.metric_names))
            raise ConfigError(f"metric_best: {spec.name} has no metric '{self.metric}'.{near} It has {known}")
        for name in self.metric_names:
            self.direction_of(name)

    @classmethod
    def from_cfg(cls, cfg: Any, spec: DatasetSpec) -> "Task":
        """Build with `model.loss_fun` and `metric_best`."""
        return cls(spec, loss_fun=LossOptions.from_cfg(cfg).loss_fun, metric=MetricOptions.from_cfg(cfg).metric_best)

    @property
    @abstractmethod
    def dim_out(self) -> int:
        """Columns that the model predicts."""

    @property
    @abstractmethod
    def metric_names(self) -> tuple[str, ...]:
        """Values of an epoch that can pick the best one, including `loss`."""

    @property
    def direction(self) -> str:
        """Whether the smallest ("min") or the largest ("max") value of `metric` is best."""
        return self.direction_of(self.metric)

    def direction_of(self, metric: str) -> str:
        """Return whether the smallest ("min") or the largest ("max") value of a metric is best.

        `accuracy_x`, of one target, is like `accuracy`. Raises ConfigError for a metric that `directions` lacks.
        """
        direction = self.directions.get(metric) or self.directions.get(metric.split("_")[0])
        if direction is None:
            raise ConfigError(
                f"task {self.spec.task}: directions has no entry for the metric '{metric}'; add min or max"
            )
        return direction

    def loss(self, pred: Tensor, y: Tensor) -> Tensor:
        """Return the scalar loss of predictions [B, dim_out] for targets [B, T]. Raises ConfigError for other shapes.

        Never synchronises: out-of-range classes are the data set's to refuse.
        """
        if pred.shape != (y.shape[0], self.dim_out):
            want = (y.shape[0], self.dim_out)
            raise ConfigError(
                f"the model predicts {tuple(pred.shape)}, but {self.spec.name} needs {want}: check gnn.head"
            )
        return self._loss(pred, y)

    @abstractmethod
    def _loss(self, pred: Tensor, y: Tensor) -> Tensor: ...

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the targets in a table: those of the data set, or target0, target1, ..."""
        return self.spec.target_names or tuple(f"target{t}" for t in range(self.spec.num_targets))

    @abstractmethod
    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return predictions [R, dim_out] as columns [R] of values, probabilities or classes, by name."""

    @abstractmethod
    def accumulator(self, device: torch.device) -> Accumulator:
        """Return empty sums for one pass over a split. They take the same predictions and targets as `loss`."""


@tasks.register("regression")
class Regression(Task):
    """Real targets [B, T]: L1 or squared error, mean over graphs and targets; mae, mse, rmse.

    Only where the data set says that it may miss targets, NaN is one that is unknown and is left out of both.
    """

    losses = ("l1", "mse")
    metric_names = ("loss", "mae", "mse", "rmse")

    @property
    def dim_out(self) -> int:
        """One column per target."""
        return self.spec.num_targets

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        measure = F.l1_loss if self.loss_fun == "l1" else F.mse_loss
        if not self.spec.may_miss_targets:
            return measure(pred, y)
        known = ~torch.isnan(y)
        # Unknown targets become the prediction itself, error 0: a mask alone would let 0 * NaN reach the gradient.
        return measure(pred, torch.where(known, y, pred.detach()), reduction="sum") / known.sum().clamp_min(1)

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the values."""
        return dict(zip(self.column_names, pred.T))

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return sums of errors."""
        return RegressionErrors(device, may_miss_targets=self.spec.may_miss_targets)


@tasks.register("classification")
class Classification(Task):
    """One of C classes per row, y [B, 1]: cross-entropy; accuracy, and its mean over classes (accuracy-SBM)."""

    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)
    metric_names = ("loss", "accuracy", "accuracy-SBM")

    @property
    def dim_out(self) -> int:
        """One logit per class."""
        return self.spec.num_classes

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(pred, y[:, 0])

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the class of each row and the probability of every class."""
        if pred.shape[1] == 1:  # one logit for two classes
            return _class_columns(torch.cat([torch.zeros_like(pred), pred], 1), "")
        return _class_columns(pred, "")

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return correct predictions per class."""
        return Accuracy(device, self.spec.num_classes)


@tasks.register("classification_sbm")
class SBMClassification(Classification):
    """Node classes of PATTERN and CLUSTER, y [N, 1]: cross-entropy weighted against the classes' sizes in the batch.

    Class c of n_c among V nodes weighs (V - n_c) / V, or 0 where it is absent (Dwivedi et al. 2023). Two classes share
    one logit, and the mean is over nodes; for more it is over weights. A batch of one class alone has loss 0.
    """

    losses = ("weighted_cross_entropy",)

    @property
    def dim_out(self) -> int:
        """One logit per class, one in all for two classes."""
        return 1 if self.spec.num_classes == 2 else self.spec.num_classes

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        classes_C = torch.arange(self.spec.num_classes, device=y.device)
        count_C = (y == classes_C).sum(0)
        weight_C = torch.where(count_C > 0, (y.shape[0] - count_C) / y.shape[0], 0).to(pred.dtype)
        if self.dim_out == 1:
            return F.binary_cross_entropy_with_logits(pred, y.to(pred.dtype), weight=weight_C[y])
        total = weight_C[y].sum().clamp_min(torch.finfo(pred.dtype).tiny)
        return F.cross_entropy(pred, y[:, 0], weight=weight_C, reduction="sum") / total


@tasks.register("multilabel")
class MultiLabel(Task):
    """T binary labels per graph, NaN where unknown: binary cross-entropy, mean over known labels; OGB's ap."""

    losses = ("cross_entropy",)
    metric_names = ("loss", "ap")

    @property
    def dim_out(self) -> int:
        """One logit per label."""
        return self.spec.num_targets

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        known = ~torch.isnan(y)
        target = torch.where(known, y, 0).to(pred.dtype)
        each = F.binary_cross_entropy_with_logits(pred, target, reduction="none")
        return torch.where(known, each, 0).sum() / known.sum().clamp_min(1)

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the probability that each label is 1."""
        return dict(zip(self.column_names, pred.sigmoid().T))

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return every score, as ranking needs them all."""
        return AveragePrecision(device)


@tasks.register("cycle_counting")
class CycleCounting(Task):
    """T classifications of C classes at once, y [B, T]: mean cross-entropy; accuracy over all and accuracy_<target>."""

    losses = ("cross_entropy",)

    @property
    def dim_out(self) -> int:
        """C logits for each target, target after target."""
        return self.spec.num_targets * self.spec.num_classes

    @property
    def target_names(self) -> tuple[str, ...]:
        """The data set's names of its targets, or their numbers."""
        return self.spec.target_names or tuple(str(t) for t in range(self.spec.num_targets))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Accuracy, and that of each target."""
        return ("loss", "accuracy", *(f"accuracy_{name}" for name in self.target_names))

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(pred.reshape(-1, self.spec.num_classes), y.flatten())

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the class and the probabilities of each target."""
        logits = pred.reshape(len(pred), self.spec.num_targets, self.spec.num_classes)
        columns: dict[str, Tensor] = {}
        for t, name in enumerate(self.column_names):
            columns |= _class_columns(logits[:, t], f"{name}_")
        return columns

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return correct predictions per target."""
        return TargetAccuracy(device, self.target_names)


def _class_columns(logits_RC: Tensor, prefix: str) -> dict[str, Tensor]:
    """Return the most likely class of each row, and the probabilities of all."""
    probability = logits_RC.softmax(1)
    return {f"{prefix}class": logits_RC.argmax(1)} | {f"{prefix}p{c}": p for c, p in enumerate(probability.T)}


def build_task(cfg: Any, spec: DatasetSpec) -> Task:
    """Return the task of a data set, with the loss and the metric of the configuration."""
    return tasks.get(spec.task).from_cfg(cfg, spec)
