"""Predictions of the best epochs of runs, for molecules of a CSV file or for a split of the runs' data set.

Several runs are an ensemble: its prediction is the mean over runs, and the deviation over runs is another column.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.config import Config, load_config
from graphgps_spse.config.identity import experiment_of, identity_of
from graphgps_spse.data.base import GraphDataset, flat_rows, is_unknown
from graphgps_spse.data.loading import LoaderOptions
from graphgps_spse.data.molecule_splits import featurise_rows, molecule_split
from graphgps_spse.data.molecules import MoleculeBlock
from graphgps_spse.data.opening import load_splits
from graphgps_spse.data.smiles import Smiles
from graphgps_spse.data.smiles_file import find_column, read_smiles, read_table
from graphgps_spse.encode import encode
from graphgps_spse.encodings.storage.policy import StoragePolicy
from graphgps_spse.environment import count_threads, pick_device
from graphgps_spse.errors import CheckpointError, ConfigError, DataError, RunDirError
from graphgps_spse.first_batch import check_categories, check_first_predictions
from graphgps_spse.nearest_molecules import NearestMolecule
from graphgps_spse.ops.threads import use_threads
from graphgps_spse.parts import Parts, build_parts, walks_chunks
from graphgps_spse.prediction_file import check_new_columns, describe_rows, new_table
from graphgps_spse.preparation import compile_all_kernels
from graphgps_spse.provenance import provenance_of
from graphgps_spse.reevaluation import check_best_epoch
from graphgps_spse.results import RunResult
from graphgps_spse.rundir import version_note
from graphgps_spse.training.checkpoint import BEST, load_best
from graphgps_spse.training.evaluation import forward_batch
from graphgps_spse.training.guards import ConstantChannelGuard
from graphgps_spse.training.optim import is_any_length
from graphgps_spse.training.options import TrainOptions
from graphgps_spse.training_atoms import read_training_atoms, warn_of_new_atoms

log = logging.getLogger(__name__)

SIMILARITY = "nearest_training_similarity"
"""Column of the Tanimoto similarity of the nearest training molecule."""
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
    kernels: dict[str, Any] = field(default_factory=dict)
    """Record of the kernels on the first batch that was predicted; empty before, and on a CPU."""

    @torch.inference_mode()
    def predict(self, graphs: GraphDataset, storage: StoragePolicy) -> Tensor:
        """Return the output of the model for each graph (or node), in order: [rows, dim_out] float32 on the CPU.

        Code and batches are those of evaluation, so that outputs are equal.
        """
        splits, _ = encode({graphs.split: graphs}, self.parts.encodings, self.num_threads, storage)
        loaders = LoaderOptions.from_cfg(self.cfg).loaders(splits, pin_memory=self.device.type == "cuda")
        amp = TrainOptions.from_cfg(self.cfg).amp
        check_categories(self.parts.model, graphs, self.device)
        if not self.kernels and len(graphs):
            given = splits[graphs.split], loaders[graphs.split].numbers(0)[0], self.device
            self.kernels.update(check_first_predictions(self.parts.model, *given, amp=amp))
        row_ptr = graphs.node_ptr if graphs.level == "node" else torch.arange(len(graphs) + 1)
        out, channels = torch.empty(int(row_ptr[-1]), self.parts.task.dim_out), ConstantChannelGuard(self.parts.model)
        for batch in loaders[graphs.split].epoch(0):
            assert batch is not None, "only one of several processes may get no graphs"
            rows = flat_rows(row_ptr, batch.index_B.cpu())
            batch = batch.to(self.device, non_blocking=True)
            channels.watch(batch)
            out[rows] = forward_batch(self.parts.model, batch, self.device, amp).cpu()
        channels.warn("these graphs")
        return out

    def read_smiles(self, smiles: Sequence[str]) -> list[str]:
        """Return the SMILES that the model reads: the largest fragment of each, where the training data are such."""
        dataset = self.parts.dataset
        return dataset.prepare(smiles) if isinstance(dataset, Smiles) else list(smiles)

    def featurise(self, smiles: Sequence[str], names: Sequence[str] = ()) -> MoleculeBlock:
        """Return the graphs of SMILES, prepared as those of the training data, and the rows that have no graph.

        Logs which molecules have atoms that no training molecule has. `names` (default: molecule 0, ..) are those of
        the molecules, for the message.
        """
        block = featurise_rows(self.read_smiles(smiles), self.num_threads)
        names = names or [f"molecule {number}" for number in range(len(smiles))]
        warn_of_new_atoms(block.x, block.sizes, read_training_atoms(self.path), [names[row] for row in block.rows])
        return block


@dataclass(frozen=True)
class Ensemble:
    """Runs of the same task on the same kind of graphs; a single run is an ensemble of one."""

    runs: tuple[TrainedRun, ...]

    @property
    def first(self) -> TrainedRun:
        """The run whose configuration and data set are used where one is needed."""
        return self.runs[0]

    @property
    def dataset(self) -> Any:
        """Data set of the first run."""
        return self.first.parts.dataset

    @property
    def column_kinds(self) -> dict[str, str]:
        """Names of the columns of `predict`, and their kinds for `new_table`."""
        columns = self._combine([torch.zeros(1, self.first.parts.task.dim_out)] * len(self.runs))
        kinds = {"f": "number", "i": "whole number", "U": "text"}
        return {name: kinds[values.dtype.kind] for name, values in columns.items()}

    def predict(self, graphs: GraphDataset, *, stored: bool = False) -> dict[str, np.ndarray]:
        """Return predictions by column, one row for each graph (or node), in order.

        Columns are predicted classes, values and probabilities (means over runs), and for several runs their sample
        standard deviations. `stored` keeps path counts in the store of the runs.
        """
        storages = [run.parts.storage if stored else run.parts.storage.without_store() for run in self.runs]
        return self._combine([run.predict(graphs, storage) for run, storage in zip(self.runs, storages)])

    def _combine(self, predictions: Sequence[Tensor]) -> dict[str, np.ndarray]:
        task = self.first.parts.task
        outputs = [task.outputs(pred) for pred in predictions]
        stacked = {name: torch.stack([columns[name].double() for columns in outputs]) for name in outputs[0]}
        means = {name: values.mean(0) for name, values in stacked.items()}
        columns = {**task.classes(means), **means}
        names = np.array(task.spec.class_names)
        classes = task.classes(means).keys() if len(names) else ()
        if len(self.runs) > 1:
            columns |= {f"{n.removesuffix('_predicted')}_deviation": values.std(0) for n, values in stacked.items()}
        return {name: names[v.numpy()] if name in classes else v.numpy() for name, v in columns.items()}


def load_runs(paths: Sequence[Path], overrides: Sequence[str] | Mapping[str, Any] = ()) -> Ensemble:
    """Return several runs as an ensemble; see `load_trained_run`.

    Raises ConfigError if tasks, targets, inputs or preparation of molecules differ, or if a run, or a copy of it, is
    named twice.
    """
    folders = [path.resolve() for path in paths]
    if twice := [path for number, path in enumerate(paths) if folders[number] in folders[:number]]:
        raise ConfigError(f"{twice[0]} is named twice, so it would count twice in the mean; name each run once")
    runs = tuple(load_trained_run(path, overrides) for path in paths)
    for number, run in enumerate(runs):
        for earlier in runs[:number]:
            if earlier.cfg.seed == run.cfg.seed and experiment_of(earlier.cfg.to_dict()) == experiment_of(
                run.cfg.to_dict()
            ):
                raise ConfigError(
                    f"{run.path} and {earlier.path} have the same configuration and seed, so one run would count twice "
                    "in the mean; name one of them"
                )
    first = runs[0].parts.dataset.spec
    kept = [getattr(run.parts.dataset, "largest_fragment", False) for run in runs]
    if len(set(kept)) > 1:
        yes, no = (runs[kept.index(value)].path for value in (True, False))
        raise ConfigError(
            f"{yes} and {no} cannot predict together, because their dataset.smiles.largest_fragment differ: True and "
            "False, so they read salts differently. Predict with each of them alone"
        )
    for run in runs[1:]:
        spec = run.parts.dataset.spec
        alike = ("task", "level", "num_targets", "num_classes", "class_names", "target_names")
        for what in (*alike, "node_input", "edge_input"):
            if getattr(spec, what) != getattr(first, what):
                raise ConfigError(
                    f"{run.path} and {runs[0].path} cannot predict together, because their {what} differ: "
                    f"{getattr(spec, what)!r} and {getattr(first, what)!r}"
                )
    return Ensemble(runs)


def load_trained_run(path: Path, overrides: Sequence[str] | Mapping[str, Any] = ()) -> TrainedRun:
    """Return the model of a run directory, `results/NAME/SEED`, at its best epoch.

    `overrides` can change runtime keys, such as accelerator, num_threads and dataset.dir. Raises CheckpointError if
    configuration, inputs or encodings differ from training, or if the weights are not of the epoch in result.json.
    """
    _require_run(path)
    try:
        cfg = load_config(path / "config.yaml", overrides)
    except ConfigError as err:
        raise ConfigError(f"{err}{version_note(path)}") from err
    device, num_threads = pick_device(cfg.accelerator), count_threads(cfg.num_threads)
    use_threads(num_threads, device, walks=walks_chunks(cfg))
    parts = build_parts(cfg)
    try:
        state = load_best(
            path, identity_of(cfg.to_dict()), provenance_of(parts), extendable=is_any_length(cfg.optim.scheduler)
        )
        parts.model.load_state_dict(state["model"])
        epoch = state["epoch"]
    except (KeyError, RuntimeError) as err:
        raise CheckpointError(f"the weights in {path} do not fit this model: {err}{version_note(path)}") from err
    except CheckpointError as err:
        raise CheckpointError(f"{err}{version_note(path)}") from err
    check_best_epoch(path, epoch)
    task, reported = parts.task.metric, parts.task.reported_metric
    chosen = f", the best by {task} on validation" + (f" ({reported} is reported)" if reported != task else "")
    finished = "" if (path / "result.json").is_file() else ", the best so far of a run that is not finished"
    log.info("%s: weights of epoch %d%s%s", path, epoch, chosen, finished)
    parts.model.to(device).eval()
    compile_all_kernels(cfg, parts.model)
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


def predict_molecules(
    ensemble: Ensemble, data: Path, out: Path, smiles_column: str = "", *, similarity: bool = False
) -> tuple[int, int]:
    """Write predictions for the rows of a CSV of SMILES. Return the number of rows, and of rows without a prediction.

    Columns are the line number in the file (row), all columns of the file as they are, the predictions, with
    `similarity` that of the nearest training molecule, and the reason of a missing prediction (error).
    """
    spec = ensemble.dataset.spec
    if (spec.node_input, spec.edge_input) != _MOLECULES or spec.level != "graph":
        raise ConfigError(
            f"{ensemble.first.path} was trained on {spec.name}, which does not consist of molecules with OGB's "
            "features and graph targets, so it cannot read SMILES; use --split test for predictions on its own data, "
            "or give new graphs as .npz, .parquet or .pt"
        )
    rows = read_table(data)
    names = next(rows).cells
    wanted = smiles_column or ensemble.first.cfg.dataset.smiles.smiles_column or "smiles"
    try:
        smiles_at = find_column(data, names, wanted)
    except DataError as err:
        of_training = not smiles_column and isinstance(ensemble.dataset, Smiles)
        why = f" The training data of {ensemble.first.path} have the SMILES in '{wanted}'." if of_training else ""
        raise DataError(f"{err}.{why} Name the column of SMILES with --smiles-column") from err
    kinds = ensemble.column_kinds | ({SIMILARITY: "number"} if similarity else {})
    check_new_columns(data, names, ["row", *kinds, "error"])
    nearest = _nearest_molecule(ensemble) if similarity else None
    num_rows = num_bad = 0
    with new_table(out, {"row": "whole number", **dict.fromkeys(names, "text"), **kinds, "error": "text"}) as table:
        while chunk := list(islice(rows, _CHUNK)):
            smiles, errors = map(list, zip(*(read_smiles(row, smiles_at, wanted) for row in chunk)))
            predicted = _predict_rows(ensemble, smiles, errors, nearest, [f"row {row.number}" for row in chunk])
            cells = zip(*(row.cells for row in chunk))
            given = {name: [_printable(text) for text in column] for name, column in zip(names, cells)}
            table.write({"row": [row.number for row in chunk], **given, **predicted, "error": errors})
            num_rows, num_bad = num_rows + len(chunk), num_bad + sum(map(bool, errors))
    log.info("%s: %s", out, describe_rows(num_rows, num_bad))
    return num_rows, num_bad


def _predict_rows(
    ensemble: Ensemble, smiles: list[str], errors: list[str], nearest: NearestMolecule | None, places: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the columns of predictions, None in rows with an error. Reasons of other missing ones join `errors`.

    `places` names the rows in messages.
    """
    valid = [row for row, error in enumerate(errors) if not error]
    block = ensemble.first.featurise([smiles[row] for row in valid], [places[row] for row in valid])
    for index, reason in block.bad:
        errors[valid[index]] = reason
    columns: dict[str, list[Any]] = {name: [None] * len(smiles) for name in ensemble.column_kinds}
    if nearest is not None:
        texts = ensemble.dataset.prepare(smiles)
        columns[SIMILARITY] = [None if error else nearest.similarity(text) for text, error in zip(texts, errors)]
    if len(block.rows):
        spec = replace(ensemble.dataset.spec, may_miss_targets=True)
        unknown = torch.full((len(block.rows), spec.num_targets), torch.nan)
        found = ensemble.predict(molecule_split(block, unknown, spec=spec, split="new molecules"))
        for name, values in found.items():
            for index, value in zip(block.rows.tolist(), values.tolist()):
                columns[name][valid[index]] = value
    return columns


def predict_split(ensemble: Ensemble, split: str, out: Path, *, similarity: bool = False) -> int:
    """Write a prediction for each graph, or each node, of a split of the runs' data set; return their number.

    Columns are those of the file for data sets from a CSV (see `predict_molecules`), otherwise the numbers of graph and
    node, counted from 0 in the split, and the targets; then follow the predictions. Where the splits are nodes of one
    graph, only nodes with a known target are written.
    """
    dataset = ensemble.dataset
    graphs = _own_split(ensemble, split)
    unknown_RT = is_unknown(graphs.y, of_classes=dataset.spec.num_classes > 0)
    columns, kinds = (
        _rows_of_file(dataset, split)
        if isinstance(dataset, Smiles)
        else _rows_of_graphs(graphs, ensemble.first.parts.task.column_names, unknown_RT)
    )
    left_out_R = unknown_RT.all(1) & (graphs.level == "node" and len(graphs) == 1)
    added = ensemble.column_kinds | ({SIMILARITY: "number"} if similarity else {})
    check_new_columns(out, list(kinds), list(added))
    nearest = _nearest_molecule(ensemble) if similarity else None
    with new_table(out, kinds | added) as table:
        predicted = {name: values.tolist() for name, values in ensemble.predict(graphs, stored=True).items()}
        if nearest is not None:
            predicted[SIMILARITY] = [nearest.similarity(row.smiles) for row in dataset.rows[split]]
        written_R = (~left_out_R).tolist()
        table.write({name: [*compress(values, written_R)] for name, values in {**columns, **predicted}.items()})
    num_rows = sum(written_R)
    if not all(written_R):
        log.info("%s: left out %s nodes whose target is not in this split", out, f"{int(left_out_R.sum()):,}")
    log.info("%s: %s predictions for %s, %s split", out, f"{num_rows:,}", graphs.name, split)
    return num_rows


def _rows_of_graphs(
    graphs: GraphDataset, targets: Sequence[str], unknown_RT: Tensor
) -> tuple[dict[str, Sequence[Any]], dict[str, str]]:
    """Return the numbers of graph and node and the targets of each row, None where unknown, and kinds of columns."""
    columns: dict[str, Sequence[Any]] = {"graph": range(len(graphs))}
    if graphs.level == "node":
        sizes = graphs.sizes_G.tolist()
        columns["graph"] = np.repeat(range(len(sizes)), sizes).tolist()
        columns["node"] = [n for size in sizes for n in range(size)]
    kinds = dict.fromkeys(columns, "whole number")
    for name, values, unknown in zip(targets, graphs.y.T, unknown_RT.T):
        columns[name] = [None if hidden else value for value, hidden in zip(values.tolist(), unknown.tolist())]
        kinds[name] = "number" if values.is_floating_point() else "whole number"
    return columns, kinds


def _rows_of_file(dataset: Smiles, split: str) -> tuple[dict[str, Sequence[Any]], dict[str, str]]:
    """Return the columns of the data set's file at the rows of a split, and their kinds."""
    rows = read_table(dataset.file)
    names, wanted = next(rows).cells, {row.number for row in dataset.rows[split]}
    check_new_columns(dataset.file, names, ["row"])
    chosen = [row for row in rows if row.number in wanted]
    cells = zip(names, zip(*(row.cells for row in chosen)))
    columns = {"row": [row.number for row in chosen], **{name: column for name, column in cells}}
    return columns, {"row": "whole number", **dict.fromkeys(names, "text")}


def _nearest_molecule(ensemble: Ensemble) -> NearestMolecule:
    """Return the training molecules of the runs. Raises DataError if the runs have different ones."""
    if not isinstance(ensemble.dataset, Smiles):
        raise ConfigError(
            f"--similarity is for runs on molecules of a CSV file, which {ensemble.dataset.spec.name} is not"
        )
    _own_split(ensemble, "train")
    return NearestMolecule([row.smiles for row in ensemble.dataset.rows["train"]])


def _printable(text: str) -> str:
    """Return a cell with bytes that are not UTF-8 escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _own_split(ensemble: Ensemble, split: str) -> GraphDataset:
    """Return a split of the runs' data set. Raises DataError if there is no such split, or if its data changed."""
    dataset = ensemble.dataset
    if dataset.spec.level == "pair" or dataset.spec.task == "name_prediction":
        what = "pairs of nodes" if dataset.spec.level == "pair" else "names"
        raise DataError(f"{dataset.spec.name}: predictions are written for graphs and nodes only, not for {what}")
    splits = load_splits(dataset)
    if split not in splits:
        raise DataError(f"--split {split}: {dataset.spec.name} has the splits {', '.join(splits)}")
    for run in ensemble.runs:
        result = run.path / "result.json"
        if result.is_file():
            trained_on, file = RunResult.read(result).fingerprints.get(split, ""), result.name
        else:  # the checkpoint of an unfinished run has the first digits; those of old versions have none
            about, file = load_best(run.path).get("about") or {}, BEST
            trained_on = str(about.get(f"fingerprint.{split}", ""))
        if not splits[split].fingerprint().startswith(trained_on):
            raise DataError(
                f"{dataset.spec.name}, {split} split: the data differ from those of {run.path}, according to the "
                f"fingerprint in {file}; restore the data or train again"
            )
    return splits[split]
