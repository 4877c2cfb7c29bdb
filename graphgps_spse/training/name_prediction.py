"""Name prediction of ogbg-code2: a word at each of the first positions of a name, and the F1 of sets of words."""

from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from graphgps_spse.data.name_targets import END, NUM_POSITIONS, UNKNOWN
from graphgps_spse.errors import DataError
from graphgps_spse.registry import tasks
from graphgps_spse.training.metrics import Accumulator
from graphgps_spse.training.task import Task

_NAMES = ("f1", "precision", "recall")


class WordScores(Accumulator):
    """Precision, recall and F1 of the different predicted words of each name, averaged over names, as OGB does.

    A predicted name ends before its first END. A prediction of UNKNOWN is a wrong word.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, **{name: torch.zeros((), dtype=torch.float64) for name in _NAMES})

    def update(self, pred: Tensor, y: Tensor) -> None:
        """Add logits [B, NUM_POSITIONS * C] and targets [B, T], in the columns of name_targets.py."""
        word_BL = pred.reshape(len(pred), NUM_POSITIONS, -1).argmax(2)
        is_inside_BL = (word_BL == END).cumsum(1) == 0
        earlier_LL = torch.ones(NUM_POSITIONS, NUM_POSITIONS, dtype=torch.bool, device=pred.device).tril(-1)
        is_repeated_BL = ((word_BL[:, :, None] == word_BL[:, None, :]) & earlier_LL).any(2)
        counts_BL = is_inside_BL & ~is_repeated_BL
        name_BW = y[:, NUM_POSITIONS:]
        is_right_BL = (word_BL[:, :, None] == name_BW[:, None, :]).any(2) & (word_BL != UNKNOWN) & counts_BL
        right_B = is_right_BL.sum(1).double()
        precision_B = right_B / counts_BL.sum(1).clamp_min(1)
        recall_B = right_B / (name_BW >= 0).sum(1).clamp_min(1)
        f1_B = 2 * precision_B * recall_B / (precision_B + recall_B).clamp_min(torch.finfo(torch.float64).tiny)
        for name, values in zip(_NAMES, (f1_B, precision_B, recall_B)):
            self.sums[name] += values.sum()
        self.count += len(pred)

    def compute(self) -> dict[str, float]:
        """Return f1, precision and recall. Raises DataError for a split without graphs."""
        if not self.count:
            raise DataError("there are no graphs, so names have no score")
        return {name: value.item() / self.count for name, value in self.sums.items()}


@tasks.register("name_prediction")
class NamePrediction(Task):
    """The first words of the name of a graph: cross-entropy, mean over positions and graphs; f1 of words as in OGB."""

    losses = ("cross_entropy",)
    metric_names = ("loss", *_NAMES)
    directions: ClassVar[dict[str, str]] = {"loss": "min"} | {name: "max" for name in _NAMES}

    @property
    def dim_out(self) -> int:
        """One logit for each position and word, position after position."""
        return NUM_POSITIONS * self.spec.num_classes

    @property
    def column_names(self) -> tuple[str, ...]:
        """The positions."""
        return tuple(f"word{position}" for position in range(NUM_POSITIONS))

    def known_rows(self, y: Tensor) -> int:
        """Return the number of graphs: all positions are known, and unused columns of y are not read by the loss."""
        return len(y)

    def _loss(self, pred: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(pred.reshape(-1, self.spec.num_classes), y[:, :NUM_POSITIONS].flatten())

    def outputs(self, pred: Tensor) -> dict[str, Tensor]:
        """Return the number of the most likely word of each position."""
        words_BL = pred.reshape(len(pred), NUM_POSITIONS, -1).argmax(2)
        return {f"{name}_predicted": column for name, column in zip(self.column_names, words_BL.T)}

    def accumulator(self, device: torch.device) -> Accumulator:
        """Return sums of scores."""
        return WordScores(device)
