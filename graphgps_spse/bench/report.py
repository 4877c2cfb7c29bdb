"""Tables and figures from result records alone."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphgps_spse.bench.results import RunResult, check_one_cell, read_history
from graphgps_spse.bench.stats import student_t_test, summarize


def group_cells(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Return the seeds of each configuration by its name. Raises DataError where one name holds several."""
    cells: dict[str, list[RunResult]] = {}
    for result in results:
        cells.setdefault(result.name, []).append(result)
    for cell in cells.values():
        check_one_cell(cell)
    return cells


def table_lines(results: Sequence[RunResult], digits: int = 4) -> list[str]:
    """Return a Markdown table: a row for each configuration, its test metric at the best validation epoch over seeds.

    Deviations are sample deviations (ddof 1). p is the two-sided Student t-test against the first row of the same data
    set and model; no test with fewer than 3 seeds on a side.
    """
    lines = [
        "| name | data set | model | encoding | seeds | metric | test, mean ± std | p | parameters | s/epoch |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    cells = sorted(group_cells(results).values(), key=_order)
    for _, group in groupby(cells, key=lambda cell: (cell[0].dataset, cell[0].model)):
        rows = list(group)
        baseline = [result.score for result in rows[0]]
        for row, cell in enumerate(rows):
            first, scores = cell[0], [result.score for result in cell]
            summary = summarize(scores)
            p_value = student_t_test(baseline, scores) if row else None
            p_text = "" if p_value is None else f"{p_value:.2g}"
            score = f"{summary.mean:.{digits}f}" + (f" ± {summary.std:.{digits}f}" if summary.n > 1 else "")
            lines.append(
                f"| {first.name} | {first.dataset} | {first.model} | {first.encoding} | {summary.n} | {first.metric} "
                f"| {score} | {p_text} "
                f"| {first.num_params:,} | {np.mean([r.seconds_per_epoch for r in cell]):.2f} |"
            )
    return lines


def draw_report(results: Sequence[RunResult], results_dir: Path, path: Path) -> None:
    """Draw one row for each data set and model: test metrics at the best epoch, and validation learning curves.

    Points are seeds, bars and lines their means, bands one sample deviation.
    """
    cells = sorted(group_cells(results).values(), key=_order)
    groups = [list(g) for _, g in groupby(cells, key=lambda cell: (cell[0].dataset, cell[0].model))]
    figure = Figure(figsize=(12, 4 * len(groups)), layout="constrained")
    for (left, right), rows in zip(figure.subplots(len(groups), 2, squeeze=False), groups):
        _draw_test_metrics(left, rows)
        _draw_learning_curves(right, rows, results_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _draw_test_metrics(axes: Axes, cells: list[list[RunResult]]) -> None:
    metric = cells[0][0].metric
    names = [name for name in cells[0][0].best["test"] if name.startswith(metric)]
    width = 0.8 / len(cells)
    for c, cell in enumerate(cells):
        values = np.array([[result.best["test"][name] for name in names] for result in cell])
        x = np.arange(len(names)) + (c - (len(cells) - 1) / 2) * width
        axes.bar(x, values.mean(0), width, color=f"C{c}", alpha=0.5, label=_label(cell))
        axes.plot(np.tile(x, (len(cell), 1)), values, ".", color=f"C{c}", markersize=6)
    axes.set_xticks(range(len(names)), [name.removeprefix(f"{metric}_") for name in names])
    axes.set_title(f"{cells[0][0].dataset}, {cells[0][0].model}: test {metric} at the best validation epoch")
    axes.margins(y=0.2)  # room above the bars
    axes.legend(loc="upper center", ncols=len(cells))


def _draw_learning_curves(axes: Axes, cells: list[list[RunResult]], results_dir: Path) -> None:
    metric = cells[0][0].metric
    for c, cell in enumerate(cells):
        histories = [read_history(results_dir / result.name / str(result.seed), "val") for result in cell]
        epochs = [record["epoch"] for record in histories[0]]
        values = np.array([[record[metric] for record in history] for history in histories])
        mean = values.mean(0)
        axes.plot(epochs, mean, color=f"C{c}", label=_label(cell))
        if len(cell) > 1:
            std = values.std(0, ddof=1)
            axes.fill_between(epochs, mean - std, mean + std, color=f"C{c}", alpha=0.2, linewidth=0)
    axes.set_xlabel("epoch")
    axes.set_title(f"validation {metric}")
    axes.legend()


def _order(cell: list[RunResult]) -> tuple[str, ...]:
    return cell[0].dataset, cell[0].model, cell[0].encoding, cell[0].name


def _label(cell: list[RunResult]) -> str:
    return f"{cell[0].name}: {cell[0].encoding} ({len(cell)} seed{'s' if len(cell) > 1 else ''})"
