"""Metrics, accumulated over the batches of a split on the device, without synchronisation, and read once."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphgps_spse.errors import DataError

DIRECTIONS = {
    "loss": "min",
    "mae": "min",
    "mse": "min",
    "rmse": "min",
    "accuracy": "max",
    "accuracy-SBM": "max",
    "ap": "max",
}
"""Whether the smallest or the largest value is best. `accuracy_x`, of one target, is like `accuracy`."""


class Accumulator(ABC):
    """Sums over the predictions of a split so far. `state()` and `load()` carry them across a restart."""

    def __init__(self, device: torch.device, **sums: Tensor) -> None:
        self.device, self.sums, self.count = device, {name: t.to(device) for name, t in sums.items()}, 0

    @abstractmethod
    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add a batch of detached predictions and targets with the same number of rows."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Return all metrics by name. Only this call waits for the device."""

    def state(self) -> dict[str, Any]:
        """Return plain types and tensors on the CPU, the argument of `load`."""
        return {"count": self.count, "sums": {name: t.cpu().clone() for name, t in self.sums.items()}}

    def measures_as(self, state: dict[str, Any]) -> bool:
        """Return whether values are comparable with those of the metrics that `state` comes from."""
        return True

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        if "sums" not in state:
            raise ValueError("the metrics were saved by another version of this program, in the middle of an epoch")
        self.count = state["count"]
        self.sums = {name: t.to(self.device) for name, t in state["sums"].items()}


class RegressionErrors(Accumulator):
    """Mean absolute, mean squared and root mean squared error over every row and target, or every known one."""

    def __init__(self, device: torch.device, *, may_miss_targets: bool = False) -> None:
        unknown = {"unknown": _zeros(torch.int64)} if may_miss_targets else {}
        super().__init__(device, absolute=_zeros(torch.float64), squared=_zeros(torch.float64), **unknown)
        self.may_miss_targets = may_miss_targets

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add pred and y, both [B, T]; y may be NaN, for unknown, only where that was said."""
        error = (pred - y).double()
        if self.may_miss_targets:
            unknown = torch.isnan(y)
            error = torch.where(unknown, 0.0, error)
            self.sums["unknown"] += unknown.sum()
        self.sums["absolute"] += error.abs().sum()
        self.sums["squared"] += error.square().sum()
        self.count += y.numel()

    def compute(self) -> dict[str, float]:
        """Return mae, mse and rmse. Raises DataError where no target is known."""
        count = self.count - (int(self.sums["unknown"]) if self.may_miss_targets else 0)
        if not count:
            raise DataError("none of its targets is known, so there is no error to measure")
        mse = self.sums["squared"].item() / count
        return {"mae": self.sums["absolute"].item() / count, "mse": mse, "rmse": mse**0.5}


class Accuracy(Accumulator):
    """Accuracy, and the mean accuracy over classes: correct predictions are counted for each true class."""

    def __init__(self, device: torch.device, num_classes: int) -> None:
        super().__init__(device, correct=_zeros(torch.int64, num_classes), total=_zeros(torch.int64, num_classes))
        self.classes_C = torch.arange(num_classes, device=device)

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add logits [B, C], or one logit [B, 1] for two classes, and classes y [B, 1]."""
        chosen_B = (pred[:, 0] > 0).long() if pred.shape[1] == 1 else pred.argmax(1)
        is_class_BC = y == self.classes_C
        self.sums["total"] += is_class_BC.sum(0)
        self.sums["correct"] += (is_class_BC & (chosen_B[:, None] == y)).sum(0)

    def compute(self) -> dict[str, float]:
        """Return accuracy, and accuracy-SBM: the mean recall of the classes that occur in the split."""
        correct, total = self.sums["correct"].double().cpu(), self.sums["total"].double().cpu()
        recall = (correct / total)[total > 0]
        return {"accuracy": (correct.sum() / total.sum()).item(), "accuracy-SBM": recall.mean().item()}


class TargetAccuracy(Accumulator):
    """Accuracy of several classifications at once, and of each."""

    def __init__(self, device: torch.device, target_names: Sequence[str]) -> None:
        super().__init__(device, correct=_zeros(torch.int64, len(target_names)))
        self.target_names = tuple(target_names)

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add logits [B, T * C], target after target, and classes [B, T]."""
        self.sums["correct"] += (pred.reshape(*y.shape, -1).argmax(2) == y).sum(0)
        self.count += y.shape[0]

    def compute(self) -> dict[str, float]:
        """Return accuracy, the mean over targets, and accuracy_<name> of each."""
        values = (self.sums["correct"].double() / self.count).tolist()
        each = {f"accuracy_{name}": value for name, value in zip(self.target_names, values)}
        return {"accuracy": sum(values) / len(values)} | each


class AveragePrecision(Accumulator):
    """Average precision of several labels. It needs all predictions of the split, which stay on the device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.pred: list[Tensor] = []
        self.y: list[Tensor] = []

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add scores and labels, both [B, T]; a label is 0, 1 or NaN where it is unknown."""
        self.pred.append(pred)
        self.y.append(y)

    def compute(self) -> dict[str, float]:
        """Return ap."""
        return {"ap": average_precision(torch.cat(self.pred), torch.cat(self.y))}

    def state(self) -> dict[str, Any]:
        """Return all predictions and labels so far."""
        return {name: torch.cat(rows).cpu() if rows else None for name, rows in (("pred", self.pred), ("y", self.y))}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.pred, self.y = ([] if state[k] is None else [state[k].to(self.device)] for k in ("pred", "y"))


def average_precision(pred: Tensor, y: Tensor) -> float:
    """Return the OGB benchmark's average precision of scores [R, T] for labels [R, T] (0, 1, or NaN for unknown).

    Mean over labels of sum_n (R_n - R_(n-1)) P_n, n over distinct scores from the greatest; rows without a label
    are left out, and so is a label that has not both values. Raises DataError if that leaves no label.
    """
    values = [_average_precision(pred[:, t].double().cpu(), y[:, t].double().cpu()) for t in range(y.shape[1])]
    defined = [value for value in values if value is not None]
    if not defined:
        raise DataError("its average precision is undefined: no label has both a positive and a negative graph")
    return sum(defined) / len(defined)


def _average_precision(score_R: Tensor, y_R: Tensor) -> float | None:
    known = ~torch.isnan(y_R)
    is_positive = y_R[known]
    if not len(is_positive) or (is_positive == is_positive[0]).all():
        return None
    return area_under_precision(score_R[known], is_positive).item()


def area_under_precision(score_R: Tensor, is_positive_R: Tensor) -> Tensor:
    """Return sum_n (R_n - R_(n-1)) P_n over the distinct scores n, for float labels 0 and 1, of which both occur."""
    score, order = torch.sort(score_R, descending=True)
    hits = is_positive_R[order].cumsum(0)
    # Rows of equal score enter together, so precision and recall are read after the last of each tie.
    last = torch.cat([score.diff() != 0, torch.ones(1, dtype=torch.bool)])
    hits, rank = hits[last], (last.nonzero()[:, 0] + 1).double()
    gained = torch.diff(hits, prepend=hits.new_zeros(1))
    return (gained / hits[-1] * (hits / rank)).sum()


def _zeros(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=dtype)
