"""One run, told in order: config -> data set -> encodings -> loaders -> model -> trainer -> result."""

import logging
import socket
import threading
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphgps_spse.config import Config
from graphgps_spse.counting import ENGINE_VERSION
from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.opening import load_splits, require_targets
from graphgps_spse.encode import check_encodable, encode, estimate_stores, fill_stores
from graphgps_spse.encodings import compile_kernels
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.encodings.path_counts import PathCountEncoding
from graphgps_spse.environment import count_threads, describe_environment, package_versions, pick_device
from graphgps_spse.errors import CheckpointError, ConfigError, DataError, RunDirError
from graphgps_spse.files import write_json
from graphgps_spse.identity import experiment_of, flatten, identity_of
from graphgps_spse.models.build import count_parameters
from graphgps_spse.models.build import describe as describe_model
from graphgps_spse.models.build import prepare_kernels as prepare_model_kernels
from graphgps_spse.models.modules.raw_features import ATOM_COLUMNS, BOND_COLUMNS
from graphgps_spse.parts import Parts, build_parts, build_training
from graphgps_spse.registry import ALL
from graphgps_spse.results import RunResult, aggregate, hash_config
from graphgps_spse.rundir import RunDir, claimed_name
from graphgps_spse.seeding import seed_all
from graphgps_spse.sizes import check_batches, explaining_shortage, memory_of
from graphgps_spse.training.checkpoint import BEST, CheckpointStore
from graphgps_spse.training.determinism import deterministic_algorithms
from graphgps_spse.training.history import FitResult
from graphgps_spse.training.processes import OneProcess, join_processes
from graphgps_spse.training.resources import ResourceMeter, merge_records
from graphgps_spse.training.tasks import direction_of
from graphgps_spse.training.trainer import Trainer

log = logging.getLogger(__name__)


def run_seeds(cfg: Config, *, num_seeds: int = 1, fresh: bool = False) -> list[RunResult]:
    """Run the seeds cfg.seed, cfg.seed + 1, ... and renew the aggregate over all finished seeds of this name."""
    out_dir, processes = Path(cfg.out_dir), join_processes()
    with ExitStack() as at_end:
        at_end.callback(processes.close)
        at_end.enter_context(processes.noticing_losses())
        if not processes.is_first:
            logging.getLogger("graphgps_spse").setLevel(logging.WARNING)
        if fresh:
            name = at_end.enter_context(claimed_name(out_dir, cfg.name)) if processes.is_first else ""
            cfg = cfg.with_values(name=processes.agree(name))
            log.info("starting in %s; resume it with name=%s", out_dir / cfg.name, cfg.name)
        results = []
        for number, seed in enumerate(range(cfg.seed, cfg.seed + num_seeds), 1):
            if num_seeds > 1:
                log.info("seed %d, %d of %d", seed, number, num_seeds)
            results.append(run(cfg.with_values(seed=seed), processes))
    if processes.is_first:
        try:
            aggregate(out_dir / cfg.name)
        except (DataError, OSError) as err:  # of other seeds, or the disk; those just run are safe in their records
            log.warning("no aggregate over seeds: %s", err)
    return results


def run(cfg: Config, processes: OneProcess | None = None) -> RunResult:
    """Train, resume or evaluate one seed, alone or as one of several processes.

    Raises an SPSEError that says what to do.
    """
    processes = OneProcess() if processes is None else processes
    path = Path(cfg.out_dir) / cfg.name / str(cfg.seed)
    if cfg.train.mode == "eval" and not RunDir(path).is_finished:
        raise RunDirError(f"{path} holds no finished run to evaluate; train it first, with train.mode=custom")
    device = pick_device(cfg.accelerator, processes.local_rank)
    num_threads = count_threads(cfg.num_threads, processes.local_count)
    torch.set_num_threads(num_threads)
    if device.index is not None:  # or every process would open a context on the first device, too
        torch.cuda.set_device(device)
    seed_all(cfg.seed)
    parts = build_parts(cfg)
    processes.seed(cfg.seed)
    training, splits = build_training(cfg, parts, path, device), dict[str, GraphDataset]()
    opened = RunDir.open(path, cfg.to_dict()) if processes.is_first else RunDir(path)
    mode = deterministic_algorithms(training.options.deterministic, device)
    with opened as run_dir, mode, explaining_shortage(splits, cfg.train.batch_size):
        if processes.agree(run_dir.is_finished) and cfg.train.mode == "custom":
            log.info("%s is finished, nothing to do; --fresh starts beside it", path)
            return RunResult.read(run_dir.result_path)
        environment = describe_environment(device, num_threads)
        environment |= {"processes": processes.count, "deterministic": training.options.deterministic}
        with processes.first_alone():
            if processes.is_first:
                run_dir.keep_environment(environment)
            with cfg.locating():
                prepare_kernels(parts.model)
            splits |= load_splits(parts.dataset)
            require_targets(splits)
            check_sizes(cfg, parts, splits, device, processes.count)
            encoded, encoding_records = encode(splits, parts.encodings, num_threads, parts.storage)
        meter = ResourceMeter(device)
        trainer = Trainer(
            model=parts.model,
            task=parts.task,
            optimizer=training.optimizer,
            scheduler=training.scheduler,
            loaders=training.loading.loaders(
                encoded, pin_memory=device.type == "cuda", part=processes.rank, num_parts=processes.count
            ),
            checkpoints=CheckpointStore(path),
            loggers=[*training.loggers, meter] if processes.is_first else [meter],
            device=device,
            options=training.options,
            signature=identity_of(cfg.to_dict()),
            about=describe_origin(parts) | describe_data(splits),
            processes=processes,
        )
        if cfg.train.mode == "eval":
            return evaluate(trainer, run_dir)
        fit = trainer.fit()
        resources = merge_records(processes.gather((socket.gethostname(), meter.record())))
        result = build_result(cfg, parts, fit, splits, encoding_records, environment, training.expected, resources)
        if processes.is_first:
            with run_dir.writing():
                result.write(run_dir.result_path)
        return result


def fill_store(
    cfg: Config,
    *,
    num_threads: int | None = None,
    part: int = 1,
    num_parts: int = 1,
    only_estimate: bool = False,
) -> None:
    """Count into the store what a run of `cfg` would keep there; of several parts, part 1, 2, .. does its share."""
    parts, threads = build_parts(cfg), num_threads or count_threads(cfg.num_threads)
    if parts.storage.options.mode == "never":
        raise ConfigError("store.mode is never, so nothing is kept; set it to auto or always")
    keeps = [encoding for encoding in parts.encodings if isinstance(encoding, PathCountEncoding)]
    if not keeps:
        raise ConfigError(f"none of its encodings ({parts.encoding_name}) is kept in a store: each start computes them")
    splits, share = load_splits(parts.dataset), {"part": part, "num_parts": num_parts}
    estimate_stores(splits, keeps, threads, parts.storage, **share)
    if not only_estimate:
        fill_stores(splits, keeps, threads, parts.storage, **share)


def check_sizes(
    cfg: Config, parts: Parts, splits: dict[str, GraphDataset], device: torch.device, num_processes: int = 1
) -> None:
    """Raise DataError or ConfigError where encodings or batches take more memory than this machine, or device, has."""
    check_encodable(splits, parts.encodings)
    with cfg.locating():
        check_batches(
            splits,
            parts.encodings,
            parts.model,
            memory_of(device),
            batch_size=cfg.train.batch_size,
            trains=cfg.train.mode == "custom",
            num_processes=num_processes,
            bytes_kept=4 if cfg.train.amp == "off" else 2,
        )


def prepare_kernels(model: nn.Module) -> None:
    """Compile kernels before their first use, or load them from a cache; log a note where this takes long.

    Raises ConfigError where `train.kernels` asks for kernels that the device of the model does not have.
    """
    note = threading.Timer(5, log.info, ["compiling kernels, once for this machine; it takes minutes on a busy one"])
    note.start()
    try:
        compile_kernels()
        prepare_model_kernels(model)
    finally:
        note.cancel()


def evaluate(trainer: Trainer, run_dir: RunDir) -> RunResult:
    """Measure the best epoch of a run on every split anew, into eval.json; the result itself stays as it is."""
    epoch = trainer.load_best()
    check_best_epoch(run_dir.path, epoch)
    measured = {split: trainer.evaluate(split) for split in trainer.loaders}
    if trainer.processes.is_first:
        with run_dir.writing():
            write_json(run_dir.path / "eval.json", {"epoch": epoch, **measured})
    log.info("epoch %d, measured in evaluation mode, the training split too", epoch)
    for split, metrics in measured.items():
        log.info("%s: %s", split, "  ".join(f"{key} {value:.6g}" for key, value in metrics.items()))
    return RunResult.read(run_dir.result_path)


def check_best_epoch(path: Path, epoch: int) -> None:
    """Raise CheckpointError where best.pt of a finished run, which holds `epoch`, is not of its result's best epoch."""
    result = path / "result.json"
    best = RunResult.read(result).best_epoch if result.is_file() else epoch
    if best != epoch:
        raise CheckpointError(
            f"{path / BEST} holds epoch {epoch}, and {result} is of epoch {best}: the disk refused the weights of that "
            "one, as the run's log says. The result holds; for its weights train anew, beside it with --fresh"
        )


def describe_origin(parts: Parts) -> dict[str, Any]:
    """Return what a checkpoint keeps besides its configuration of what it was trained on, by dotted keys."""
    spec = parts.dataset.spec
    about: dict[str, Any] = {"data": asdict(spec) | {"target_names": list(spec.target_names)}}
    about["data"] |= {key: list(getattr(spec, key)) for key in ("node_input", "edge_input")}
    for name, input_spec, columns in (
        ("atoms", spec.node_input, ATOM_COLUMNS),
        ("bonds", spec.edge_input, BOND_COLUMNS),
    ):
        if input_spec.kind == "ogb":
            about["data"][name] = [size for _, size in columns]
    about["encodings"] = {encoding.name: _plain_options(encoding) for encoding in parts.encodings}
    if any(isinstance(encoding, PathCountEncoding) for encoding in parts.encodings):
        about["encodings"]["counting_engine"] = ENGINE_VERSION
    return flatten(about | {"versions": {key: v.partition("+")[0] for key, v in package_versions().items()}})


def describe_data(splits: dict[str, GraphDataset]) -> dict[str, str]:
    """Return what a checkpoint keeps of the graphs themselves, so that a run never goes on with others."""
    return {f"fingerprint.{split}": graphs.fingerprint()[:16] for split, graphs in splits.items()}


def _plain_options(encoding: Encoding) -> dict[str, Any]:
    """Return the options of an encoding that a checkpoint can hold."""
    return {key: v for key, v in vars(encoding).items() if isinstance(v, bool | int | float | str | dict)}


def build_result(
    cfg: Config,
    parts: Parts,
    fit: FitResult,
    splits: dict[str, GraphDataset],
    encoding_records: dict[str, Any],
    environment: dict[str, Any],
    expected: dict[str, Any],
    resources: dict[str, Any],
) -> RunResult:
    """Gather the record of a finished run."""
    same_for_all_seeds = experiment_of(cfg.to_dict())
    return RunResult(
        name=cfg.name,
        dataset=parts.dataset.spec.name,
        model=cfg.model.type,
        encoding=parts.encoding_name,
        seed=cfg.seed,
        metric=parts.dataset.spec.metric,
        direction=direction_of(parts.dataset.spec.metric),
        best_epoch=fit.best_epoch,
        best=fit.metrics,
        epochs=fit.epochs,
        seconds=fit.seconds,
        seconds_per_epoch=fit.seconds / fit.epochs,
        num_params=count_parameters(parts.model),
        config_hash=hash_config(same_for_all_seeds),
        fingerprints={split: graphs.fingerprint() for split, graphs in splits.items()},
        encodings=encoding_records,
        expected=expected,
        environment=environment,
        config=same_for_all_seeds,
        resources=resources,
        history_digests=fit.digests(),
    )


def describe(cfg: Config) -> list[str]:
    """Return lines that show what a configuration builds and how it is trained; needs no data.

    Raises what `run` would raise for it, but for its data.
    """
    parts, path = build_parts(cfg), Path(cfg.out_dir) / cfg.name / str(cfg.seed)
    device, num_threads = pick_device(cfg.accelerator), count_threads(cfg.num_threads)
    mode = cfg.train.mode
    build_training(cfg, parts, path, device)
    spec, task, optim = parts.dataset.spec, parts.task, cfg.optim
    rows = "B" if spec.level == "graph" else "N"
    lines = [
        f"run directory: {path}, train.mode {mode}, device {device}, threads {num_threads}",
        f"data set: {spec.name}, nodes {spec.node_input.kind} ({spec.node_input.size}), "
        f"edges {spec.edge_input.kind} ({spec.edge_input.size}), targets [{rows}, {spec.num_targets}]",
        f"task: {spec.task}, loss {task.loss_fun}, best epoch by {task.metric} ({task.direction}) on validation",
        f"training: {optim.optimizer}, lr {optim.base_lr:g}, weight decay {optim.weight_decay:g}, batches of "
        f"{cfg.train.batch_size} graphs, {optim.max_epoch} epochs, {optim.scheduler}, "
        f"{optim.num_warmup_epochs} epochs of warm-up",
    ]
    for encoding in parts.encodings:
        options = ", ".join(f"{key} {value}" for key, value in vars(encoding).items() if not key.startswith("dim_"))
        shapes = f"pairs [P, {encoding.dim_pair}], nodes [N, {encoding.dim_node}]"
        lines.append(f"encoding: {encoding.name}, {shapes} ({options})")
    return [
        *lines,
        f"output: [{rows}, {task.dim_out}]",
        "model, with the shapes of its parameters:",
        *describe_model(parts.model),
    ]


def list_components() -> list[str]:
    """Return one line for each registered component, its name and the first line of its docstring, under its kind.

    Components of plugins that are imported are marked.
    """
    lines = []
    for registry in ALL:
        lines.append(f"{registry.kind}, by {registry.key}:" if registry.key else f"{registry.kind}:")
        for name in registry.names():
            component = registry.get(name)
            about = (component.__doc__ or "").strip().partition("\n")[0] or "no description"
            is_ours = component.__module__.partition(".")[0] == __package__
            lines.append(f"  {name:26s} {about}" + ("" if is_ours else f" (plugin {component.__module__})"))
    return lines
