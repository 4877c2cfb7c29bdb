"""From the runs that were found to a report: cells, the pairs that are compared, and what could not be used."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphgps_spse.errors import DataError
from graphgps_spse.files import BEFORE_DIGESTS
from graphgps_spse.reports.cells import Cell
from graphgps_spse.reports.collect import Collection
from graphgps_spse.reports.stats import LEVEL, Comparison, compare, holm
from graphgps_spse.results import check_one_cell

ENCODER_KEYS = frozenset({"dataset.node_encoder_name", "dataset.edge_encoder_name"})
"""They name encodings too, as in TypeDictNode+RWSE."""


@dataclass(frozen=True)
class Pair:
    """The same model on the same data with walks and with paths."""

    walks: Cell
    paths: Cell
    comparison: Comparison
    """Scores with paths minus scores with walks."""
    holm_p: float | None
    """Student's p, adjusted for all pairs of the table."""

    @property
    def validation_difference(self) -> float:
        """Mean on validation with paths minus that with walks, in the table's unit."""
        return self.paths.validation.mean - self.walks.validation.mean

    @property
    def gain(self) -> bool | None:
        """Whether paths are better; None where the means are equal."""
        difference = self.comparison.difference
        return None if difference == 0 else (difference < 0) == (self.paths.column.direction == "min")

    @property
    def stars(self) -> int:
        """0; 1 where Student's p is at most 0.05, as the paper; 2 where it is so after Holm's correction too."""
        if self.comparison.student_p is None or self.comparison.student_p > LEVEL:
            return 0
        return 2 if self.holm_p is not None and self.holm_p <= LEVEL else 1

    @property
    def verdict(self) -> str:
        """In words: gain or loss, and how significant."""
        if self.comparison.student_p is None:
            return "no test: fewer than 3 seeds"
        side = {True: "gain", False: "loss", None: "equal"}[self.gain]
        return f"{side} {'*' * self.stars}".strip() if self.stars else f"{side}, not significant"


@dataclass(frozen=True)
class Report:
    """Everything that tables, pages and figures show."""

    cells: list[Cell]
    pairs: list[Pair]
    absent: list[str]
    """Runs without a result, and how far they came."""
    refused: list[str]
    """Cells that mix runs, and records that could not be read."""
    notes: list[str]
    """What a reader should know of cells that are shown."""


def build_report(found: Collection) -> Report:
    """Make cells of the runs, compare them, and list what could not be used. Raises DataError where no cell is left."""
    cells, refused, absent = [], list(found.problems), []
    for folder in sorted({*found.finished, *found.unfinished}):
        label, unfinished = found.label(folder), found.unfinished.get(folder, {})
        absent += [f"{label}/{seed}: {state}" for seed, state in sorted(unfinished.items())]
        if folder not in found.finished:
            continue
        runs = sorted(found.finished[folder], key=lambda run: run.result.seed)
        try:
            check_one_cell([run.result for run in runs])
        except DataError as err:
            refused.append(f"{label}: {err}")
            continue
        cells.append(Cell(label, tuple(runs), unfinished, len(found.planned.get(folder, ()))))
    if not cells:
        told = "".join(f"\n  {line}" for line in [*refused, *absent])
        raise DataError(f"{found.root}: there is no finished run to report on{':' if told else ''}{told}")
    cells.sort(key=lambda cell: cell.order)
    absent += [line for cell in cells for line in _never_begun(cell)]
    pairs, notes = _make_pairs(cells)
    notes += found.notes + _notes_on_age(cells) + _notes_on_data(cells)
    return Report(cells, pairs, absent, refused, notes + [note for cell in cells for note in _notes_on(cell)])


def _never_begun(cell: Cell) -> list[str]:
    more = cell.num_intended - len(cell.runs) - len(cell.unfinished)
    return [f"{cell.label}: {more} more of the {cell.num_intended} seeds of expected.seeds, not begun"] if more else []


def _make_pairs(cells: Sequence[Cell]) -> tuple[list[Pair], list[str]]:
    """Pair every cell with paths with the one without, on the same data and model, and adjust the tests for all."""
    pairs, notes = [], []
    for paths in (cell for cell in cells if cell.uses_paths):
        walks = _find_walks(paths, cells)
        if isinstance(walks, str):
            notes.append(f"{paths.label}: {walks}")
            continue
        pairs.append(Pair(walks, paths, compare(walks.scores, paths.scores), None))
        notes += _notes_on_pair(walks, paths)
    tested = [pair.comparison.student_p for pair in pairs if pair.comparison.student_p is not None]
    adjusted = iter(holm(tested))
    adjusted_pairs = [
        pair if pair.comparison.student_p is None else replace(pair, holm_p=next(adjusted)) for pair in pairs
    ]
    return adjusted_pairs, notes


def _find_walks(paths: Cell, cells: Sequence[Cell]) -> Cell | str:
    """Return the cell that `paths` is compared with, or why there is none."""
    same = [c for c in cells if not c.uses_paths and (c.first.dataset, c.model) == (paths.first.dataset, paths.model)]
    same = [c for c in same if c.encoding == "RWSE"] or same
    if len(same) > 1:
        same = [c for c in same if c.stem == paths.stem] or same
    if not same:
        return "not compared, as there is no run of this model and data set without SPSE"
    if len(same) > 1:
        names = ", ".join(c.label for c in same)
        return f"not compared, as {names} all may be its counterpart; let names differ in the encoding alone"
    walks = same[0]
    for what in ("fingerprints", "metric", "direction"):
        if getattr(walks.first, what) != getattr(paths.first, what):
            return f"not compared with {walks.label}, as their {what} differ"
    return walks


def _notes_on_pair(walks: Cell, paths: Cell) -> list[str]:
    """Say what is not compared with walks, and which keys besides the encodings' differ between the two cells."""
    notes = []
    if walks.encoding != "RWSE":
        notes.append(f"{paths.label} is compared with {walks.label}, which has {walks.encoding}, for want of RWSE")
    first, second = walks.first.config, paths.first.config
    if not first or not second:
        return notes
    keys = [key for key in sorted({*first, *second}) if first.get(key) != second.get(key)]
    others = [key for key in keys if not key.startswith("posenc_") and key not in ENCODER_KEYS]
    if others:
        told = ", ".join(f"{key} {first.get(key)!r} and {second.get(key)!r}" for key in others)
        notes.append(f"{walks.label} and {paths.label} differ in more than their encodings: {told}")
    return notes


def _notes_on_age(cells: Sequence[Cell]) -> list[str]:
    results = [result for cell in cells for result in cell.results]
    old = sum(result.schema == BEFORE_DIGESTS for result in results)
    told = f"{old} of {len(results)} records are of a version that wrote no digests: damage to them may not show"
    return [told] if old else []


def _notes_on_data(cells: Sequence[Cell]) -> list[str]:
    """Name data sets whose cells stand in one column and were not made on the same graphs."""
    notes = []
    for dataset in dict.fromkeys(cell.first.dataset for cell in cells):
        kinds: dict[str, list[str]] = {}
        for cell in cells:
            if cell.first.dataset == dataset:
                kinds.setdefault(json.dumps(cell.first.fingerprints, sort_keys=True), []).append(cell.label)
        if len(kinds) > 1:
            told = " / ".join(", ".join(labels) for labels in kinds.values())
            notes.append(f"{dataset}: its cells were not made on the same data: {told}")
    return notes


def _notes_on(cell: Cell) -> list[str]:
    """Say where a cell's published expectation does not apply, and where its seeds were made by different code."""
    notes = []
    if cell.why_not_expected:
        file = cell.first.expected.get("file", "its file")
        notes.append(f"{cell.label}: what {file} expects is of another configuration: {cell.why_not_expected}")
    for key in ("commit", "torch", "numpy", "device"):
        kinds = sorted({str(result.environment.get(key, "")) for result in cell.results})
        if len(kinds) > 1:
            told = ", ".join(kind or "not recorded" for kind in kinds)
            notes.append(f"{cell.label}: seeds differ in {key}: {told}")
    if any(str(result.environment.get("commit", "")).endswith("+changes") for result in cell.results):
        notes.append(f"{cell.label}: made by code with changes that no commit holds")
    return notes
