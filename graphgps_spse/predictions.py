"""Predictions of a run's best epoch as CSV, for molecules of a CSV file or for a split of the run's data set."""

import csv
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.config import Config, load_config
from graphgps_spse.config.identity import identity_of
from graphgps_spse.data.base import GraphDataset, flat_rows
from graphgps_spse.data.loading import LoaderOptions
from graphgps_spse.data.molecule_splits import featurise_rows, molecule_split
from graphgps_spse.data.molecules import MoleculeBlock
from graphgps_spse.data.opening import load_splits
from graphgps_spse.data.pcqm4mv2 import TEST_SPLITS, write_submission
from graphgps_spse.data.smiles import Smiles
from graphgps_spse.data.smiles_file import BadRow, SmilesRow, read_rows
from graphgps_spse.encode import encode
from graphgps_spse.encodings.storage.policy import StoragePolicy
from graphgps_spse.environment import count_threads, pick_device
from graphgps_spse.errors import CheckpointError, ConfigError, DataError, RunDirError
from graphgps_spse.files import new_folder, write_new
from graphgps_spse.parts import Parts, build_parts
from graphgps_spse.preparation import compile_all_kernels
from graphgps_spse.provenance import provenance_of
from graphgps_spse.reevaluation import check_best_epoch
from graphgps_spse.results import RunResult
from graphgps_spse.training.checkpoint import load_best
from graphgps_spse.training.evaluation import forward_batch
from graphgps_spse.training.optim import is_any_length
from graphgps_spse.training.options import TrainOptions

log = logging.getLogger(__name__)

_CHUNK = 8192  # molecules that are predicted at a time
_MOLECULES = (("ogb", 9), ("ogb", 3))  # input specifications of atoms and bonds


@dataclass(frozen=True)
class TrainedRun:
    """Model of a run with the weights of its best epoch, and the configuration for reading graphs."""

    path: Path
    cfg: Config
    parts: Parts
    device: torch.device
    num_threads: int

    @torch.inference_mode()
    def predict(self, graphs: GraphDataset, storage: StoragePolicy) -> Tensor:
        """Return the output of the model for each graph (or node), in order: [rows, dim_out] float32 on the CPU.

        Code and batches are those of evaluation, so that outputs are equal.
        """
        splits, _ = encode({graphs.split: graphs}, self.parts.encodings, self.num_threads, storage)
        loaders = LoaderOptions.from_cfg(self.cfg).loaders(splits, pin_memory=self.device.type == "cuda")
        amp = TrainOptions.from_cfg(self.cfg).amp
        row_ptr = graphs.node_ptr if graphs.level == "node" else torch.arange(len(graphs) + 1)
        out = torch.empty(int(row_ptr[-1]), self.parts.task.dim_out)
        for batch in loaders[graphs.split].epoch(0):
            assert batch is not None, "only one of several processes may get no graphs"
            batch = batch.to(self.device, non_blocking=True)
            pred = forward_batch(self.parts.model, batch, self.device, amp)
            out[flat_rows(row_ptr, batch.index_B)] = pred.cpu()
        return out

    def featurise(self, smiles: Sequence[str]) -> MoleculeBlock:
        """Return the graphs of SMILES, prepared as those of the training data, and the rows that have no graph."""
        dataset = self.parts.dataset
        return featurise_rows(dataset.prepare(smiles) if isinstance(dataset, Smiles) else smiles, self.num_threads)

    def columns(self, pred: Tensor) -> dict[str, list[str]]:
        """Return predictions as text, by column. Nine digits identify every float32."""
        outputs = self.parts.task.outputs(pred)
        return {
            name: [f"{v:.9g}" if values.is_floating_point() else str(v) for v in values.tolist()]
            for name, values in outputs.items()
        }


def load_run(path: Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> TrainedRun:
    """Return the model of a run directory, `results/NAME/SEED`, at its best epoch.

    `overrides` can change runtime keys, such as accelerator, num_threads and dataset.dir. Raises CheckpointError if
    configuration, inputs or encodings differ from training, or if the weights are not of the epoch in result.json.
    """
    _require_run(path)
    cfg = load_config(path / "config.yaml", overrides)
    device, num_threads = pick_device(cfg.accelerator), count_threads(cfg.num_threads)
    torch.set_num_threads(num_threads)
    parts = build_parts(cfg)
    state = load_best(
        path, identity_of(cfg.to_dict()), provenance_of(parts), extendable=is_any_length(cfg.optim.scheduler)
    )
    try:
        parts.model.load_state_dict(state["model"])
        epoch = state["epoch"]
    except (KeyError, RuntimeError) as err:
        raise CheckpointError(f"the weights in {path} do not fit this model: {err}") from err
    check_best_epoch(path, epoch)
    task, reported = parts.task.metric, parts.task.reported_metric
    chosen = f", the best by {task} on validation" + (f" ({reported} is reported)" if reported != task else "")
    finished = "" if (path / "result.json").is_file() else ", the best so far of a run that is not finished"
    log.info("%s: weights of epoch %d%s%s", path, epoch, chosen, finished)
    parts.model.to(device).eval()
    compile_all_kernels(parts.model)
    return TrainedRun(path, cfg, parts, device, num_threads)


def _require_run(path: Path) -> None:
    """Raise RunDirError unless `path` is a readable run directory."""
    try:
        if (path / "config.yaml").is_file():
            return
        seeds = sorted(str(p.parent) for p in path.glob("*/config.yaml"))
    except OSError as err:
        raise RunDirError(f"{path} cannot be read ({err.strerror}); name the folder NAME/SEED of a run") from err
    hint = f"; did you mean {', '.join(seeds[:3])}?" if seeds else "; name the folder NAME/SEED of a run"
    raise RunDirError(f"{path} is not a run directory, because it has no config.yaml{hint}")


def predict_molecules(run: TrainedRun, data: Path, out: Path, smiles_column: str = "") -> tuple[int, int]:
    """Write predictions for the rows of a CSV of SMILES. Return the number of rows, and of rows without a prediction.

    Columns are the line number in the file (row), the SMILES (smiles), the predictions, and the reason of a missing
    prediction (error).
    """
    spec = run.parts.dataset.spec
    if (spec.node_input, spec.edge_input) != _MOLECULES or spec.level != "graph":
        raise ConfigError(
            f"{run.path} was trained on {spec.name}, which does not consist of molecules with OGB's features and graph "
            "targets, so it cannot read SMILES; use --split test for predictions on its own data"
        )
    if not smiles_column:
        smiles_column = run.cfg.dataset.smiles.smiles_column
    names = list(run.columns(torch.empty(0, run.parts.task.dim_out)))
    num_rows = num_bad = 0
    with _table(out, ["row", "smiles", *names, "error"]) as writer:
        rows = read_rows(data, smiles_column)
        while chunk := list(islice(rows, _CHUNK)):
            predicted = _predict_rows(run, [row for row in chunk if isinstance(row, SmilesRow)])
            for row in chunk:
                values = predicted.get(row.number)
                bad = row if isinstance(row, BadRow) else None
                if isinstance(values, str):
                    bad = BadRow(row.number, row.smiles, values)
                cells = [""] * len(names) if bad is not None or values is None else values
                writer.writerow([row.number, row.smiles, *cells, "" if bad is None else bad.reason])
                num_rows, num_bad = num_rows + 1, num_bad + (bad is not None)
    log.info("%s: %s rows, %s of them without a prediction (column error)", out, f"{num_rows:,}", f"{num_bad:,}")
    return num_rows, num_bad


def _predict_rows(run: TrainedRun, rows: list[SmilesRow]) -> dict[int, list[str] | str]:
    """Return the cells of each row by row number, or the reason why there are none."""
    block = run.featurise([row.smiles for row in rows])
    found: dict[int, list[str] | str] = {rows[index].number: reason for index, reason in block.bad}
    if not len(block.rows):
        return found
    spec = replace(run.parts.dataset.spec, may_miss_targets=True)
    unknown = torch.full((len(block.rows), spec.num_targets), torch.nan)
    graphs = molecule_split(block, unknown, spec=spec, split="new molecules")
    columns = run.columns(run.predict(graphs, run.parts.storage.without_store()))
    for index, cells in zip(block.rows.tolist(), zip(*columns.values())):
        found[rows[index].number] = list(cells)
    return found


def predict_split(run: TrainedRun, split: str, out: Path) -> int:
    """Write a prediction for each graph, or each node, of a split of the run's data set; return their number.

    Columns are row and smiles for data sets from a CSV, otherwise graph and node, counted from 0 in the split, and the
    predictions.
    """
    dataset = run.parts.dataset
    graphs = _own_split(run, dataset, split)
    keys: dict[str, list[Any]] = {"graph": list(range(len(graphs)))}
    if isinstance(dataset, Smiles):
        rows = dataset.rows[split]
        keys = {"row": [row.number for row in rows], "smiles": [row.smiles for row in rows]}
    elif graphs.level == "node":
        sizes = graphs.sizes_G.tolist()
        keys = {"graph": np.repeat(range(len(sizes)), sizes).tolist(), "node": [n for s in sizes for n in range(s)]}
    with _table(out, [*keys, *run.columns(torch.empty(0, run.parts.task.dim_out))]) as writer:
        columns = run.columns(run.predict(graphs, run.parts.storage))
        writer.writerows(zip(*keys.values(), *columns.values()))
    num_rows = len(next(iter(columns.values())))
    log.info("%s: %s predictions for %s, %s split", out, f"{num_rows:,}", graphs.name, split)
    return num_rows


def predict_submission(run: TrainedRun, folder: Path) -> list[Path]:
    """Write and return the files for OGB's leaderboard of PCQM4Mv2: test-dev and test-challenge."""
    if run.cfg.dataset.format != "OGB" or not run.cfg.dataset.name.startswith("PCQM4Mv2-"):
        raise ConfigError(f"{run.path} was trained on {run.parts.dataset.spec.name}; --submission is for PCQM4Mv2")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} already exists; name another folder")
    overrides = ["dataset.name=PCQM4Mv2-inference", "train.mode=eval", f"dataset.dir={run.cfg.dataset.dir}"]
    inference = build_parts(load_config(run.path / "config.yaml", overrides)).dataset
    splits = load_splits(inference)
    predictions = {part: run.predict(splits[part], run.parts.storage)[:, 0].numpy() for part in TEST_SPLITS}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as unfinished:  # both files or neither
            files = [folder / file.name for file in write_submission(predictions, unfinished)]
    except OSError as err:
        raise DataError(f"{folder} cannot be written ({err.strerror}); name another folder") from err
    log.info("written for OGB's leaderboard: %s", ", ".join(str(file) for file in files))
    return files


def _own_split(run: TrainedRun, dataset: Any, split: str) -> GraphDataset:
    """Return a split of the run's data set. Raises DataError if there is no such split, or if its data changed."""
    splits = load_splits(dataset)
    if split not in splits:
        raise DataError(f"--split {split}: {dataset.spec.name} has the splits {', '.join(splits)}")
    result = run.path / "result.json"
    trained_on = RunResult.read(result).fingerprints.get(split) if result.is_file() else None
    if trained_on is not None and splits[split].fingerprint() != trained_on:
        raise DataError(
            f"{dataset.spec.name}, {split} split: the data differ from those of {run.path}, according to the "
            "fingerprint in result.json; restore the data or train again"
        )
    return splits[split]


@contextmanager
def _table(path: Path, header: Sequence[str]) -> Iterator[Any]:
    """Yield a writer of CSV rows. The file appears when all rows are written; no existing file is overwritten."""
    if len(set(header)) < len(header):
        duplicate = next(name for name in header if header.count(name) > 1)
        raise DataError(f"{path}: two columns would have the name '{duplicate}'; rename this target")
    try:
        if path.exists():
            raise DataError(f"{path} already exists; name another file with --out")
        with write_new(path) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            yield writer
    except FileExistsError as err:
        raise DataError(f"{path} was written by another process in the meantime; name another file with --out") from err
    except OSError as err:
        raise DataError(f"{path} cannot be written ({err.strerror or err}); name another file with --out") from err
