"""Gradient-boosted trees (LightGBM, Ke et al. 2017) on tables of features, with records like those of runs."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.baselines.features import build_features, check_names
from graphgps_spse.config import Config
from graphgps_spse.config.identity import experiment_of
from graphgps_spse.data.base import DatasetSpec
from graphgps_spse.data.opening import load_splits
from graphgps_spse.encode import encode
from graphgps_spse.encodings import build_encodings
from graphgps_spse.encodings.storage.policy import StoragePolicy
from graphgps_spse.environment import count_threads, describe_environment
from graphgps_spse.errors import ConfigError
from graphgps_spse.files import write_atomic
from graphgps_spse.parts import with_missing_keys
from graphgps_spse.registry import datasets
from graphgps_spse.results import RunResult, aggregate, hash_config
from graphgps_spse.rundir import RunDir
from graphgps_spse.training.history import EpochRecord, FitResult
from graphgps_spse.training.task import Task
from graphgps_spse.training.tasks import build_task

log = logging.getLogger(__name__)

OBJECTIVES = {"regression": {"l1": "l1", "mse": "l2"}, "multilabel": {"cross_entropy": "binary"}}
"""Task, and its loss, to LightGBM's objective."""


@dataclass(frozen=True)
class TreeOptions:
    """How trees are grown; the defaults serve thousands of rows with hundreds to thousands of columns."""

    learning_rate: float = 0.1
    num_leaves: int = 31
    min_data_in_leaf: int = 10
    feature_fraction: float = 0.3
    bagging_fraction: float = 0.8
    lambda_l2: float = 1.0
    max_rounds: int = 500
    patience: int = 50
    """Rounds without a better validation loss after which a target's trees stop growing."""


@dataclass(frozen=True)
class TreeData:
    """A data set as tables, made once for all seeds."""

    spec: DatasetSpec
    task: Task
    features: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    """Split -> [G, T] float32, NaN for unknown."""
    fingerprints: dict[str, str]
    encodings: dict[str, Any]
    name: str
    """What the features are called in a table: the encodings' names, fingerprints, descriptors."""


def load_tables(cfg: Config, names: Sequence[str]) -> TreeData:
    """Load the data set, compute its encodings and return features and targets.

    Raises ConfigError for a task other than regression or labels of graphs.
    """
    check_names(names)
    cfg = with_missing_keys(cfg)
    with cfg.locating():
        dataset = datasets.get(cfg.dataset.format).from_cfg(cfg)
        task = build_task(cfg, dataset.spec)
        encodings = build_encodings(cfg) if "encodings" in names else []
        if "encodings" in names and not encodings:
            raise ConfigError("--features encodings: the configuration enables none (posenc_SPSE.enable=True)")
    spec = dataset.spec
    if cfg.dataset.class_weights != "off":
        raise ConfigError("dataset.class_weights: the trees have no weights of classes; set off")
    if spec.level != "graph" or spec.task not in OBJECTIVES:
        raise ConfigError(f"{spec.name} is {spec.task} of {spec.level}s; trees take regression or labels of graphs")
    splits = load_splits(dataset)
    task.check_metrics({split: graphs.y for split, graphs in splits.items()})
    encoded, records = encode(splits, encodings, count_threads(cfg.num_threads), StoragePolicy.from_cfg(cfg))
    smiles = {split: [row.smiles for row in rows] for split, rows in getattr(dataset, "rows", {}).items()}
    own = "+".join(encoding.name for encoding in encodings)
    return TreeData(
        spec=spec,
        task=task,
        features=build_features(names, encoded, spec.node_input, smiles),
        targets={split: graphs.y.float().numpy() for split, graphs in splits.items()},
        fingerprints={split: graphs.fingerprint() for split, graphs in splits.items()},
        encodings=records,
        name="+".join(own if name == "encodings" else name for name in names),
    )


def run_seed(cfg: Config, data: TreeData, options: TreeOptions) -> RunResult:
    """Train one seed and write its result.json; a seed that is finished is read, not trained again."""
    settings = {f"trees.{key}": value for key, value in vars(options).items()}
    config = {**cfg.to_dict(), "trees": {**vars(options), "features": data.name}}
    with RunDir.open(Path(cfg.out_dir) / cfg.name / str(cfg.seed), config) as run_dir:
        if run_dir.is_finished:
            log.info("%s is finished, nothing to do", run_dir.path)
            return RunResult.read(run_dir.result_path)
        environment = describe_environment(torch.device("cpu"), count_threads(cfg.num_threads))
        run_dir.keep_environment(environment)
        begin = time.perf_counter()
        scores, num_leaves = fit_predict(data, options, seed=cfg.seed, num_threads=environment["num_threads"])
        seconds = time.perf_counter() - begin
        fit = _as_fit(data, scores, seconds, num_leaves)
        same_for_all_seeds = experiment_of(cfg.to_dict()) | settings | {"trees.features": data.name}
        metric = data.task.reported_metric
        result = RunResult(
            name=cfg.name,
            dataset=data.spec.name,
            model="LightGBM",
            encoding=data.name,
            seed=cfg.seed,
            metric=metric,
            direction=data.task.direction_of(metric),
            best_epoch=0,
            best=fit.metrics,
            epochs=1,
            seconds=seconds,
            seconds_per_epoch=seconds,
            num_params=0,  # of a network; the number of leaves differs from seed to seed
            config_hash=hash_config(same_for_all_seeds),
            fingerprints=data.fingerprints,
            encodings=data.encodings,
            expected={},
            environment=environment,
            config=same_for_all_seeds,
            history_digests=fit.digests(),
        )
        with run_dir.writing():
            for split in fit.metrics:
                folder = run_dir.path / split
                folder.mkdir(exist_ok=True)
                write_atomic(folder / "stats.json", "".join(record.line(split) for record in fit.history).encode())
            result.write(run_dir.result_path)
            aggregate(run_dir.path.parent)
        return result


def fit_predict(data: TreeData, options: TreeOptions, *, seed: int, num_threads: int) -> tuple[dict[str, Tensor], int]:
    """Train one ensemble for each target; return raw scores of each split [G, T], and the number of leaves.

    Each ensemble stops at its best validation loss. A target that is constant in training keeps that value, as a logit
    of 0 or 1 where it is a label.
    """
    import lightgbm

    objective = OBJECTIVES[data.spec.task][data.task.loss_fun]
    settings = {
        "objective": objective,
        "verbosity": -1,
        "seed": seed,
        "num_threads": num_threads,
        "deterministic": True,
        "force_col_wise": True,
        "bagging_freq": 1,
        "learning_rate": options.learning_rate,
        "num_leaves": options.num_leaves,
        "min_data_in_leaf": options.min_data_in_leaf,
        "feature_fraction": options.feature_fraction,
        "bagging_fraction": options.bagging_fraction,
        "lambda_l2": options.lambda_l2,
    }
    scores = {split: torch.zeros(len(rows), data.spec.num_targets) for split, rows in data.features.items()}
    total_leaves = 0
    binned: dict[tuple[bytes, bytes], tuple[Any, Any]] = {}  # columns are binned once for targets of the same rows
    for target in range(data.spec.num_targets):
        known = {split: ~np.isnan(values[:, target]) for split, values in data.targets.items()}
        train = data.targets["train"][known["train"], target]
        if not len(train) or (train == train[0]).all():
            value = train[0] if len(train) else 0.0
            for rows in scores.values():
                rows[:, target] = float(value) if objective != "binary" else (30.0 if value else -30.0)
            continue
        key = (known["train"].tobytes(), known["val"].tobytes())
        if key not in binned:
            tables = [lightgbm.Dataset(data.features[split][known[split]]) for split in ("train", "val")]
            binned[key] = tables[0], tables[1].set_reference(tables[0])
        for split, table in zip(("train", "val"), binned[key]):
            table.set_label(data.targets[split][known[split], target])
        train_table, val_table = binned[key]
        callbacks: list[Any] = [lightgbm.early_stopping(options.patience, verbose=False)] if known["val"].any() else []
        booster = lightgbm.train(
            settings,
            train_table,
            num_boost_round=options.max_rounds,
            valid_sets=[val_table] if callbacks else [],
            callbacks=callbacks,
        )
        rounds = booster.best_iteration or options.max_rounds
        total_leaves += sum(tree["num_leaves"] for tree in booster.dump_model(num_iteration=rounds)["tree_info"])
        for split, rows in scores.items():
            predicted = booster.predict(data.features[split], raw_score=True, num_iteration=rounds)
            rows[:, target] = torch.from_numpy(np.asarray(predicted))
    return scores, total_leaves


def _as_fit(data: TreeData, scores: dict[str, Tensor], seconds: float, num_leaves: int) -> FitResult:
    """Measure the scores with the task's own loss and metrics, as one epoch."""
    values: dict[str, dict[str, float]] = {}
    for split, pred in scores.items():
        y = torch.from_numpy(data.targets[split])
        sums = data.task.new_metrics(torch.device("cpu"))
        sums.update(pred, y)
        times = {"time_epoch": seconds if split == "train" else 0.0, "leaves": num_leaves}
        values[split] = {"loss": float(data.task.loss(pred, y)), **sums.compute(), **times}
    return FitResult.of([EpochRecord(0, values, 0)])
