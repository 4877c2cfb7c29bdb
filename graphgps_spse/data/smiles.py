"""User molecules: a CSV with a SMILES column and target columns. Atoms and bonds have the features of OGB.

Invalid rows are listed with line number and reason in `<dataset.dir>/<name>/bad_rows-<digest>.csv`. The digest is of
the content of the list, so that a list is never overwritten. For large files, graphs and scaffolds are stored in the
same folder.
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from graphgps_spse.cores import ThreadOptions
from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.kept_arrays import Arrays, digest_of, make_or_read
from graphgps_spse.data.molecules import KILLED_PROCESS, MoleculeBlock, count_workers, featurise_block, featurise_many
from graphgps_spse.data.options import SourceOptions
from graphgps_spse.data.smiles_file import BadRow, SmilesRow, read_rows, write_bad_rows
from graphgps_spse.data.splits import SPLITS, check_split, find_scaffold, split_at_random, split_by_scaffold
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.options import Options, option
from graphgps_spse.registry import datasets

log = logging.getLogger(__name__)

TASKS = {"regression": ("regression", "mae"), "binary": ("multilabel", "ap"), "multilabel": ("multilabel", "ap")}
"""Value of dataset.smiles.task -> registered task and metric."""
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}

_ROWS_PER_PROCESS = 4096
_MIN_STORED_ROWS = 20_000  # graphs of fewer rows are computed in seconds
_FEATURES_VERSION = 1  # to be raised when the same SMILES gives other arrays
_MAX_FLOAT32 = 3.4028234663852886e38


class SmilesOptions(Options, section="dataset.smiles"):
    """Options of user molecules, `dataset.format: smiles` (docs/own_data.md)."""

    file: str = option("", "the CSV file, plain or .gz, with a header; required")
    smiles_column: str = option("smiles", "the column of SMILES")
    target_columns: tuple[str, ...] = option(
        (), "the columns of targets, e.g. [logP]; required; names that are numbers in quotes"
    )
    task: str = option(
        "regression",
        "what the targets are; binary: one column of 0 and 1; multilabel: several such columns",
        choices=tuple(TASKS),
    )
    split: str = option(
        "random",
        "how rows are split; scaffold: by Bemis-Murcko scaffold, the largest groups to train; column: by split_column",
        choices=("random", "scaffold", "column"),
    )
    split_column: str = option("split", "for split: column, the column of train, val (or valid) and test")
    fractions: tuple[float, ...] = option(
        (0.8, 0.1, 0.1),
        "for split: random and scaffold, the shares of train, validation and test, of sum 1",
        lengths=(3,),
    )
    seed: int = option(
        0, "for split: random, the seed of the split; it is not the seed of the run, so all runs share one split"
    )
    on_error: str = option(
        "refuse",
        "what to do with bad rows: refuse the file or skip the rows; both list the rows",
        choices=("refuse", "skip"),
    )


class LabelledRow(NamedTuple):
    """A row of the CSV with valid targets."""

    number: int
    """Line number in the file."""
    smiles: str
    targets: tuple[float, ...]
    """NaN for unknown targets."""
    group: str
    """Split of the row if a column defines the splits; otherwise empty."""


@dataclass(frozen=True)
class SmilesSplit:
    """Division of rows into train, val and test."""

    how: str = "random"
    """Method: random, scaffold or column."""
    column: str = "split"
    """Column that names the split of each row, for the method "column"."""
    fractions: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Shares of train, val and test, for the methods "random" and "scaffold"."""
    seed: int = 0
    """Seed of the method "random"."""

    def divide(self, groups: Sequence[str]) -> dict[str, list[int]]:
        """Return the rows of each split, ascending. `groups` holds the scaffold of each row, or its split by column.

        Raises DataError if a split is empty.
        """
        if self.how == "random":
            rows = split_at_random(len(groups), self.fractions, self.seed)
        elif self.how == "scaffold":
            rows = split_by_scaffold(groups, self.fractions)
        else:
            rows = {split: [row for row, group in enumerate(groups) if group == split] for split in SPLITS}
        check_split(rows, self.how)
        return rows


@datasets.register("smiles")
class Smiles:
    """User molecules from a CSV with SMILES and targets, for regression or for binary labels."""

    def __init__(
        self,
        *,
        file: Path,
        name: str,
        smiles_column: str,
        target_columns: tuple[str, ...],
        task: str,
        split: SmilesSplit,
        on_error: str,
        folder: Path,
        num_workers: int = 1,
    ) -> None:
        """`num_workers` processes convert molecules. Empty targets are allowed only if there are several targets."""
        self.file, self.smiles_column, self.task, self.split = file, smiles_column, task, split
        self.on_error, self.folder, self.num_workers = on_error, folder, num_workers
        framework_task, metric = TASKS[task]
        self.spec = DatasetSpec(
            name=name,
            level="graph",
            task=framework_task,
            num_targets=len(target_columns),
            num_classes=0 if task == "regression" else 2,
            metric=metric,
            node_input=InputSpec("ogb", 9),
            edge_input=InputSpec("ogb", 3),
            target_names=target_columns,
            may_miss_targets=len(target_columns) > 1,
            own_data=True,
        )
        self.rows: dict[str, list[SmilesRow]] = {}
        """Line number and SMILES of each graph of a split, set by `load`."""

    @classmethod
    def from_cfg(cls, cfg: Any) -> "Smiles":
        """Read and check `dataset.smiles`, `dataset.name` (empty: the file's name) and `dataset.dir`."""
        s, source = SmilesOptions.from_cfg(cfg), SourceOptions.from_cfg(cfg)
        for key in ("file", "smiles_column", "target_columns"):
            if not getattr(s, key):
                raise ConfigError(f"dataset.smiles.{key} is empty; docs/own_data.md shows an example")
        _check_columns(s.smiles_column, s.target_columns, s.task)
        split = SmilesSplit(s.split, s.split_column, s.fractions, s.seed)
        if split.how != "column":
            _check_fractions(split.fractions)
        name = source.name or Path(s.file).name.removesuffix(".gz").removesuffix(".csv")
        return cls(
            file=Path(s.file),
            name=name,
            smiles_column=s.smiles_column,
            target_columns=s.target_columns,
            task=s.task,
            split=split,
            on_error=s.on_error,
            folder=Path(source.dir) / name,
            num_workers=count_workers(ThreadOptions.from_cfg(cfg).num_threads),
        )

    def load(self) -> dict[str, GraphDataset]:
        """Read the file and return the splits. Raises DataError that names the first invalid rows, unless skipped."""
        extra = (*self.spec.target_names, *([self.split.column] if self.split.how == "column" else []))
        labelled: list[LabelledRow] = []
        bad: list[BadRow] = []
        for row in read_rows(self.file, self.smiles_column, extra):
            parsed = row if isinstance(row, BadRow) else self._parse(row)
            if isinstance(parsed, BadRow):
                bad.append(parsed)
            else:
                labelled.append(parsed)
        graphs = self._featurise([row.smiles for row in labelled])
        bad += [BadRow(labelled[row].number, labelled[row].smiles, reason) for row, reason in graphs.bad]
        labelled = [labelled[row] for row in graphs.rows]
        if bad:
            self._report_bad_rows(sorted(bad), len(bad) + len(labelled))
        try:
            groups = [row.group for row in labelled]
            if self.split.how == "scaffold":
                groups = self._find_scaffolds([row.smiles for row in labelled])
            rows = self.split.divide(groups)
        except DataError as err:
            raise DataError(f"{self.file}: {err}; change dataset.smiles.fractions or dataset.smiles.split") from err
        self.rows = {split: [SmilesRow(*labelled[row][:2], ()) for row in part] for split, part in rows.items()}
        self._warn_about_duplicates()
        targets_GT = torch.tensor([row.targets for row in labelled], dtype=torch.float32)
        return {
            split: molecule_split(
                select_molecules(graphs, part), targets_GT[part], spec=self.spec, split=split, source=str(self.file)
            )
            for split, part in rows.items()
        }

    def _featurise(self, smiles: Sequence[str]) -> MoleculeBlock:
        """Return the graphs of the SMILES, read from disk if they are stored."""

        def make() -> Arrays:
            block = featurise_rows(smiles, self.num_workers)
            bad = np.frombuffer(json.dumps(block.bad).encode(), np.uint8)
            return {**block._asdict(), "bad": bad}

        def is_final(arrays: Arrays) -> bool:  # a process that was killed may have lacked memory
            return KILLED_PROCESS not in arrays["bad"].tobytes().decode()

        arrays = dict[str, Any](self._make_or_read("graphs", smiles, make, is_final))
        arrays["bad"] = [(row, reason) for row, reason in json.loads(arrays["bad"].tobytes())]
        return MoleculeBlock(**arrays)

    def _find_scaffolds(self, smiles: Sequence[str]) -> list[str]:
        """Return the scaffold of each SMILES, read from disk if they are stored."""

        def make() -> Arrays:
            return {"scaffolds": np.frombuffer(json.dumps([find_scaffold(text) for text in smiles]).encode(), np.uint8)}

        return json.loads(self._make_or_read("scaffolds", smiles, make)["scaffolds"].tobytes())

    def _make_or_read(
        self,
        what: str,
        smiles: Sequence[str],
        make: Callable[[], Arrays],
        is_final: Callable[[Arrays], bool] = lambda arrays: True,
    ) -> Arrays:
        """Return the arrays that `make` computes from the SMILES. The arrays of large files are stored on disk."""
        if len(smiles) < _MIN_STORED_ROWS:
            return make()
        from rdkit import rdBase

        digest = digest_of([f"{_FEATURES_VERSION} {rdBase.rdkitVersion}", *smiles])
        return make_or_read(self.folder / f"{what}-{digest}.npz", make, is_final=is_final)

    def _parse(self, row: SmilesRow) -> LabelledRow | BadRow:
        num_targets = self.spec.num_targets
        try:
            targets = tuple(
                self._target(text, name) for text, name in zip(row.cells[:num_targets], self.spec.target_names)
            )
            if all(math.isnan(target) for target in targets):
                raise ValueError(f"has no target in {', '.join(self.spec.target_names)}")
            group = self._named_split(row.cells[num_targets:])
        except ValueError as err:
            return BadRow(row.number, row.smiles, str(err))
        return LabelledRow(row.number, row.smiles, targets, group)

    def _target(self, text: str, column: str) -> float:
        """Return the number in a cell, or NaN for an empty cell. Raises ValueError with the reason."""
        if not text:
            return math.nan
        try:
            value = float(text) if "_" not in text else math.nan  # Python would read 1_0 as 10
            if math.isnan(value):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{column}: '{text[:40]}' is not a number"
                + ("; leave the cell empty if the target is unknown" if self.spec.num_targets > 1 else "")
            ) from None
        if abs(value) > _MAX_FLOAT32:
            raise ValueError(f"{column}: {text[:40]} is infinite or too large for float32")
        if self.task != "regression" and value not in (0.0, 1.0):
            raise ValueError(f"{column}: '{text[:40]}' is not a label; labels are 0 and 1")
        return value

    def _named_split(self, cells: tuple[str, ...]) -> str:
        """Return the split in the split column, or "" for other methods. Raises ValueError with the reason."""
        if self.split.how != "column":
            return ""
        if cells[0].lower() not in SPLIT_NAMES:
            raise ValueError(f"{self.split.column}: '{cells[0][:40]}' must be train, val, valid or test")
        return SPLIT_NAMES[cells[0].lower()]

    def _report_bad_rows(self, bad: list[BadRow], num_rows: int) -> None:
        path = write_bad_rows(bad, self.folder)
        reasons = "\n".join(f"  row {row.number}: {row.reason}" for row in bad[:3])
        more = f"\n  and {len(bad) - 3:,} more" if len(bad) > 3 else ""
        message = f"{self.file}: {len(bad):,} of {num_rows:,} rows are invalid:\n{reasons}{more}\nlisted in {path}"
        if self.on_error == "refuse":
            raise DataError(f"{message}. Correct these rows, or skip them with dataset.smiles.on_error=skip")
        log.warning("%s, and skipped", message)

    def _warn_about_duplicates(self) -> None:
        count = Counter(smiles for part in self.rows.values() for smiles in {row.smiles for row in part})
        shared = [smiles for smiles, number in count.items() if number > 1]
        if shared:
            log.warning(
                "%s: %s SMILES are in more than one split, for example %s", self.file, f"{len(shared):,}", shared[0]
            )


def featurise_rows(smiles: Sequence[str], num_workers: int) -> MoleculeBlock:
    """Return the graphs of a list of SMILES as a single block, computed by up to `num_workers` processes."""
    num_workers = min(num_workers, 1 + len(smiles) // _ROWS_PER_PROCESS)
    blocks = list(featurise_many(smiles, num_workers=num_workers)) or [featurise_block([])]
    arrays = {
        name: np.concatenate([getattr(block, name) for block in blocks], axis=-1 if name == "edge_index" else 0)
        for name in MoleculeBlock._fields[:-1]
    }
    return MoleculeBlock(**arrays, bad=[row for block in blocks for row in block.bad])


def select_molecules(block: MoleculeBlock, graphs: Sequence[int]) -> MoleculeBlock:
    """Return the given graphs of a block, in ascending order."""
    chosen_G = np.zeros(len(block.sizes), dtype=bool)
    chosen_G[list(graphs)] = True
    nodes, edges = np.repeat(chosen_G, block.sizes), np.repeat(chosen_G, block.num_edges)
    return MoleculeBlock(
        rows=block.rows[chosen_G],
        sizes=block.sizes[chosen_G],
        num_edges=block.num_edges[chosen_G],
        x=block.x[nodes],
        edge_index=block.edge_index[:, edges],
        edge_attr=block.edge_attr[edges],
        bad=[],
    )


def molecule_split(
    block: MoleculeBlock, targets_GT: torch.Tensor, *, spec: DatasetSpec, split: str, source: str = ""
) -> GraphDataset:
    """Return a split of molecules and their targets [G, T] float32, where NaN stands for unknown."""
    return GraphDataset(
        name=spec.name,
        split=split,
        x_NF=torch.from_numpy(block.x),
        edge_index_2E=torch.from_numpy(block.edge_index),
        edge_attr_EF=torch.from_numpy(block.edge_attr),
        y=targets_GT,
        node_ptr=torch.from_numpy(np.concatenate([[0], block.sizes.cumsum()])),
        edge_ptr=torch.from_numpy(np.concatenate([[0], block.num_edges.cumsum()])),
        may_miss_targets=spec.may_miss_targets,
        source=source,
    )


def _check_columns(smiles_column: str, target_columns: Sequence[str], task: str) -> None:
    names = [smiles_column, *target_columns]
    wrong = [name for name in target_columns if names.count(name) > 1]
    if wrong:
        raise ConfigError(f"dataset.smiles.target_columns: {wrong[0]!r} must be the name of a column, listed once")
    if task == "binary" and len(target_columns) > 1:
        raise ConfigError(
            f"dataset.smiles.task: binary has one target column, not {len(target_columns)}; use multilabel"
        )


def _check_fractions(fractions: Sequence[float]) -> None:
    if not all(0 < part < 1 for part in fractions) or abs(sum(fractions) - 1) > 1e-6:
        raise ConfigError(
            f"dataset.smiles.fractions: {list(fractions)} must be three shares of train, val and test that sum to 1"
        )
