"""Classification of edges, or of other labelled pairs of nodes."""

from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from graphgps_spse.data.pair_targets import LABEL
from graphgps_spse.errors import DataError
from graphgps_spse.registry import tasks
from graphgps_spse.training.metrics import Accumulator
from graphgps_spse.training.task import Task


def _classes(y: Tensor) -> Tensor:
    """Return the class of each pair, [P] int64, -1 where it is unknown, of targets [P, 3]."""
    return torch.nan_to_num(y[:, LABEL], nan=-1.0).long()


class EdgeScores(Accumulator):
    """Accuracy and F1 over all labelled pairs of a split.

    F1 is that of class 1. Of three or more classes, it is the mean over those that occur or are predicted.
    """

    def __init__(self, device: torch.device, num_classes: int) -> None:
        names = ("right", "predicted", "true")
        super().__init__(device, **{name: torch.zeros(num_classes, dtype=torch.int64) for name in names})

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add logits [P, C] and targets [P, 3] of all pairs of some graphs."""
        class_P, chosen_P = _classes(y), pred.argmax(1)
        is_known_P = class_P >= 0
        for name, values_P, counts_P in (
            ("right", chosen_P, is_known_P & (chosen_P == class_P)),
            ("predicted", chosen_P, is_known_P),
            ("true", class_P.clamp_min(0), is_known_P),
        ):
            self.sums[name].index_add_(0, values_P, counts_P.long())

    def compute(self) -> dict[str, float]:
        """Return f1 and accuracy. Raises DataError for a split without labelled pairs."""
        right_C, predicted_C, true_C = (self.sums[name].double().cpu() for name in ("right", "predicted", "true"))
        if not true_C.sum():
            raise DataError("there are no labelled pairs, so their classes have no score")
        total_C = predicted_C + true_C
        f1_C = 2 * right_C / total_C.clamp_min(1)
        f1 = f1_C[1] if len(f1_C) == 2 else f1_C[total_C > 0].mean()
        return {"f1": f1.item(), "accuracy": (right_C.sum() / true_C.sum()).item()}


@tasks.register("edge_classification")
class EdgeClassification(Task):
    """One of C classes for each edge: cross-entropy, mean over the edges of a batch; f1 and accuracy."""

    losses = ("cross_entropy",)
    metric_names = ("loss", "f1", "accuracy")
    directions: ClassVar[dict[str, str]] = {"loss": "min", "f1": "max", "accuracy": "max"}

    @property
    def dim_out(self) -> int:
        """One logit for each class."""
        return self.spec.num_classes

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        class_P = _classes(y)
        total = F.cross_entropy(pred, class_P, ignore_index=-1, reduction="sum")
        return total / (class_P >= 0).sum().clamp_min(1)

    def known_rows(self, y: Tensor) -> Tensor:
        """Return the number of pairs of a known class."""
        return (_classes(y) >= 0).sum().double()

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the probability of every class of each pair."""
        return {f"edge_probability_{name}": p for name, p in zip(self.class_labels, pred.softmax(1).T)}

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return counts of each class."""
        return EdgeScores(device, self.spec.num_classes)
