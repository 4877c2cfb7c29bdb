"""Registered metrics of every target of a split and their means, from all predictions of the split."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from graphgps_spse.data.base import is_unknown
from graphgps_spse.errors import DataError
from graphgps_spse.registry import metrics
from graphgps_spse.training.metrics import Accumulator
from graphgps_spse.training.split_metrics import Metric


class TargetMetrics(Accumulator):
    """Registered metrics of all predictions of a split, which stay on the device until `compute`."""

    def __init__(self, device: torch.device, names: Sequence[str], target_names: Sequence[str]) -> None:
        """`names` are metrics of the registry, `target_names` the names of the T targets."""
        super().__init__(device)
        self.names, self.target_names = tuple(names), tuple(target_names)
        self.pred: list[Tensor] = []
        self.y: list[Tensor] = []

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add a batch; the columns are those of `compute_metrics`."""
        self.pred.append(pred)
        self.y.append(y)

    def compute(self) -> dict[str, float]:
        """Return the metrics that are defined, by name."""
        return compute_metrics(self.names, torch.cat(self.pred), torch.cat(self.y), self.target_names)

    def state(self) -> dict[str, Any]:
        """Return all predictions and targets so far."""
        return {name: torch.cat(rows).cpu() if rows else None for name, rows in (("pred", self.pred), ("y", self.y))}

    def measures_as(self, state: dict[str, Any]) -> bool:
        """Return whether `state` is of this version, or of one target.

        Earlier versions took means over all known values of all targets, and not over targets.
        """
        return state.keys() == {"pred", "y"} or len(self.target_names) == 1

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a value that `state` returned."""
        if state.keys() != {"pred", "y"}:
            raise ValueError("the metrics were saved by another version of this program, in the middle of an epoch")
        self.pred, self.y = ([] if state[k] is None else [state[k].to(self.device)] for k in ("pred", "y"))


class CombinedMetrics(Accumulator):
    """The metrics of a benchmark and registered ones. Where both have a name, the registered metric holds."""

    def __init__(self, benchmark: Accumulator, registered: TargetMetrics) -> None:
        super().__init__(registered.device)
        self.parts = {"benchmark": benchmark, "registered": registered}

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add a batch of predictions and targets."""
        for part in self.parts.values():
            part.update(pred, y)

    def compute(self) -> dict[str, float]:
        """Return all metrics by name."""
        return {name: value for part in self.parts.values() for name, value in part.compute().items()}

    def state(self) -> dict[str, Any]:
        """Return the states of both parts."""
        return {name: part.state() for name, part in self.parts.items()}

    def measures_as(self, state: dict[str, Any]) -> bool:
        """Return whether `state` is of both parts, or of one target."""
        return state.keys() == self.parts.keys() or self.parts["registered"].measures_as(state)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a value that `state` returned."""
        if state.keys() != self.parts.keys():
            raise ValueError("the metrics were saved by another version of this program, in the middle of an epoch")
        for name, part in self.parts.items():
            part.load(state[name])


def target_metric_names(names: Sequence[str], target_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the values of `compute_metrics`: NAME, and NAME_TARGET if there are several targets."""
    each = target_names if len(target_names) > 1 else ()
    return tuple(value for name in names for value in (name, *(f"{name}_{target}" for target in each)))


def compute_metrics(names: Sequence[str], pred: Tensor, y: Tensor, target_names: Sequence[str]) -> dict[str, float]:
    """Return each metric by name: its mean over the targets, and NAME_TARGET of each if there are several.

    `y` [R, T] holds floats with NaN for unknown, or int64: values, or classes with -1 for unknown. `pred` is [R, T],
    values or logits of class 1, or [R, T * C], logits of C classes, target after target. A metric without a value for
    a target (`find_undefined`) is left out there, and its mean is over the other targets. Raises DataError for a value
    that is not finite.
    """
    values: dict[str, float] = {}
    pred, y = pred.detach().double().cpu(), y.cpu()
    num_classes = max(2, pred.shape[1] // len(target_names))
    for name in names:
        metric: Metric = metrics.get(name)()
        each: dict[str, float] = {}
        for target, (rows, known) in zip(target_names, _known_rows(pred, y, of_classes=metric.of_classes)):
            if len(known) and not metric.why_undefined(known, num_classes if metric.of_classes else 0):
                each[target] = float(metric.compute(rows, known))
                if not math.isfinite(each[target]):
                    of = f" of target {target}" if len(target_names) > 1 else ""
                    raise DataError(
                        f"the metric {name}{of} is {each[target]}; its why_undefined must return the reason"
                    )
        if each:
            values[name] = sum(each.values()) / len(each)
        if len(target_names) > 1:
            values |= {f"{name}_{target}": value for target, value in each.items()}
    return values


def find_undefined(
    names: Sequence[str], y: Tensor, target_names: Sequence[str], num_classes: int
) -> dict[str, dict[str, str]]:
    """Return metric -> target -> why the metric has no value for these targets y [R, T].

    Metrics that are defined for all targets are left out. `num_classes` is 0 for values.
    """
    found: dict[str, dict[str, str]] = {}
    y = y.cpu()
    for name in names:
        metric: Metric = metrics.get(name)()
        for t, target in enumerate(target_names):
            known = _known(y[:, t], of_classes=metric.of_classes)
            reason = metric.why_undefined(known, num_classes) if len(known) else "no target is known"
            if reason:
                found.setdefault(name, {})[target] = reason
    return found


def _known(y: Tensor, *, of_classes: bool) -> Tensor:
    """Return the known targets of a column y [R]: int64 classes or float64 values."""
    y = y[~is_unknown(y, of_classes=of_classes)]
    return y.long() if of_classes else y.double()


def _known_rows(pred: Tensor, y: Tensor, *, of_classes: bool) -> list[tuple[Tensor, Tensor]]:
    """Return for each target the rows that are known: values [R] or log-probabilities [R, C], and targets [R]."""
    num_rows, num_targets = y.shape
    columns = []
    for t in range(num_targets):
        is_known = ~is_unknown(y[:, t], of_classes=of_classes)
        rows = pred.reshape(num_rows, num_targets, -1)[is_known, t]
        if not of_classes:
            rows = rows[:, 0]
        elif rows.shape[1] == 1:  # one logit for two classes
            rows = torch.cat([F.logsigmoid(-rows), F.logsigmoid(rows)], 1)
        else:
            rows = rows.log_softmax(1)
        columns.append((rows, _known(y[:, t], of_classes=of_classes)))
    return columns
