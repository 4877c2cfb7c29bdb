"""Model selection by validation scores. Selection by test scores would bias the reported test scores."""

import math
from collections.abc import Sequence

from graphgps_spse.reports.cells import Cell
from graphgps_spse.reports.folds import CrossValidation, combine_folds


def rank_on_validation(cells: Sequence[Cell]) -> list[list[Cell | CrossValidation]]:
    """Return the cells of each data set and metric, sorted by their validation mean, the best first.

    The folds of a cross-validation count as one cell, which is ranked among cross-validations with as many folds. Cells
    without a finite mean are last. Cells with equal means keep their order.
    """
    groups: dict[tuple[str, str, int], list[Cell | CrossValidation]] = {}
    for cell in combine_folds(cells):
        folds = cell.num_folds if isinstance(cell, CrossValidation) else 0
        groups.setdefault((cell.first.dataset, cell.first.metric, folds), []).append(cell)
    return [sorted(group, key=_order) for group in groups.values()]


def describe_best(cells: Sequence[Cell]) -> list[str]:
    """Return a line for each data set: the best configuration on validation, with its test score."""
    return [_describe(ranking) for ranking in rank_on_validation(cells)]


def _order(cell: Cell | CrossValidation) -> tuple[bool, float]:
    mean = cell.validation.mean
    return math.isnan(mean), mean if cell.column.direction == "min" else -mean


def _describe(ranking: Sequence[Cell | CrossValidation]) -> str:
    best = ranking[0]
    dataset, metric = best.first.dataset, best.first.metric
    if math.isnan(best.validation.mean):
        return f"{dataset}: no configuration has a finite {metric} on validation"
    test = f"{best.format(best.summary)} on test" if "test" in best.first.splits else "test not evaluated"
    of = f"the best of {len(ranking)} configurations" if len(ranking) > 1 else "the only configuration"
    return (
        f"{dataset}: {best.label} is {of}: {metric} {best.format(best.validation)} on validation, "
        f"{test} ({best.seeds}{'' if isinstance(best, CrossValidation) else ' seeds'})"
    )
