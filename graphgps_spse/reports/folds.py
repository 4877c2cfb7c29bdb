"""Cross-validations: cells that differ only in the fold that is the test split, summarised over folds.

Runs of a sweep over `dataset.split_index` count as folds too, also if it selects one of several standard splits.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphgps_spse.reports.cells import Cell
from graphgps_spse.reports.paper import Column
from graphgps_spse.reports.stats import Summary, summarize
from graphgps_spse.results import RunResult

FOLDS, FOLD = "dataset.smiles.folds", "dataset.smiles.fold"
"""Keys of the number of folds, and of the fold that is the test split; absent from records at the value 0."""
SPLIT_MODE, SPLIT_INDEX = "dataset.split_mode", "dataset.split_index"
"""The same for public data sets: the rule, which may hold the number of folds, and the fold or standard split."""


@dataclass(frozen=True)
class CrossValidation:
    """Finished cells of one cross-validation, sorted by fold. Means are over folds, of each fold's mean over seeds."""

    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """Label of the cells, without the fold."""
        return _without_fold(self.cells[0].label)

    @property
    def first(self) -> RunResult:
        """Record of the first run, for properties that all runs share."""
        return self.cells[0].first

    @property
    def column(self) -> Column:
        """Table column of the data set."""
        return self.cells[0].column

    @property
    def num_folds(self) -> int:
        """Number of folds of the cross-validation, including unfinished ones."""
        largest = max(fold_of(cell) or 0 for cell in self.cells)
        return self._stated_folds or largest + 1

    @property
    def is_partition(self) -> bool:
        """Whether the folds divide the data, each of them once the test split; standard splits need not."""
        return bool(self._stated_folds)

    @property
    def _stated_folds(self) -> int:
        """Number of folds in the configuration; 0 if it selects one of several standard splits."""
        config = self.first.config
        of_rule = re.fullmatch(r"cv-.*-(\d+)", str(config.get(SPLIT_MODE, "")))
        return int(config.get(FOLDS, 0)) or int(of_rule[1] if of_rule else 0)

    @property
    def folds(self) -> str:
        """Number of folds with a finished run, and of all folds, e.g. 4/5."""
        return f"{len(self.cells)}/{self.num_folds}"

    @property
    def seeds(self) -> str:
        """Numbers of finished and intended runs of these folds, and of folds, e.g. "9/10 seeds, 5/5 folds"."""
        finished, intended = sum(len(c.runs) for c in self.cells), sum(c.num_intended for c in self.cells)
        return f"{finished}/{intended} seeds, {self.folds} folds"

    @property
    def summary(self) -> Summary:
        """Mean, sample standard deviation and number of the folds' test scores."""
        return summarize([cell.summary.mean for cell in self.cells])

    @property
    def validation(self) -> Summary:
        """Mean, sample standard deviation and number of the folds' validation scores."""
        return summarize([cell.validation.mean for cell in self.cells])

    def format(self, summary: Summary) -> str:
        """Return mean and standard deviation as text, with the digits of the column."""
        return self.cells[0].format(summary)


def fold_of(cell: Cell) -> int | None:
    """Return the fold that is the test split of a cell; None without a cross-validation."""
    config = cell.first.config
    if config.get(FOLDS, 0):
        return int(config.get(FOLD, 0))
    index = int(config.get(SPLIT_INDEX, 0))
    return index if cell.label.endswith(f"-split_index{index}") else None


def _without_fold(label: str) -> str:
    """Return the label of a cell without the fold, which sweeps append as the last part of the name."""
    return re.sub(r"-(fold|split_index)\d+$", "", label)


def cross_validations(cells: Sequence[Cell]) -> list[CrossValidation]:
    """Return the cross-validations among the cells, in the order of their first cells."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if fold_of(cell) is not None:
            folder, _, name = cell.label.rpartition("/")
            common = {key: value for key, value in cell.first.config.items() if key not in (FOLD, SPLIT_INDEX)}
            key = [folder, _without_fold(name), cell.first.dataset, common]
            groups.setdefault(json.dumps(key, sort_keys=True), []).append(cell)
    return [CrossValidation(tuple(sorted(group, key=lambda cell: fold_of(cell) or 0))) for group in groups.values()]


def combine_folds(cells: Sequence[Cell]) -> list[Cell | CrossValidation]:
    """Return the cells without folds, followed by the cross-validations."""
    return [*(cell for cell in cells if fold_of(cell) is None), *cross_validations(cells)]
