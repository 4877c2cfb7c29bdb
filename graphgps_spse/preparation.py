"""What precedes the first batch: sizes that are checked and kernels that are compiled."""

import logging
import threading
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphgps_spse.config import Config
from graphgps_spse.data.base import GraphDataset
from graphgps_spse.encode import check_encodable
from graphgps_spse.encodings import compile_kernels
from graphgps_spse.environment import count_threads, pick_device
from graphgps_spse.models.build import prepare_kernels
from graphgps_spse.ops.threads import use_threads
from graphgps_spse.parts import Parts
from graphgps_spse.reevaluation import check_best_epoch
from graphgps_spse.rundir import RunDir
from graphgps_spse.sizes import check_batches, memory_of
from graphgps_spse.training.checkpoint import BEST
from graphgps_spse.training.initial_weights import read_source, take_weights
from graphgps_spse.training.processes import OneProcess

log = logging.getLogger(__name__)


def set_up_machine(cfg: Config, processes: OneProcess) -> tuple[torch.device, int]:
    """Set the number of threads and the current CUDA device for this process, and return device and number."""
    device = pick_device(cfg.accelerator, processes.local_rank)
    num_threads = count_threads(cfg.num_threads, processes.local_count)
    use_threads(num_threads, device)
    if device.index is not None:  # without this, each process would also open a context on the first device
        torch.cuda.set_device(device)
    return device, num_threads


def take_initial_weights(model: nn.Module, init_from: str, path: Path) -> dict[str, Any]:
    """Copy the weights of `train.init_from` into the model of the run in `path`; return a record of it.

    Without the key, and for a run that has begun, nothing is read and the record is empty: a checkpoint holds weights
    and record.
    """
    if not init_from or RunDir(path).has_begun:
        return {}
    source = read_source(init_from)
    if source.file.name == BEST:
        check_best_epoch(source.file.parent, source.epoch)
    return take_weights(model, source)


def check_memory_needs(
    cfg: Config, parts: Parts, splits: dict[str, GraphDataset], device: torch.device, num_processes: int = 1
) -> None:
    """Raise DataError or ConfigError if encodings or batches take more memory than the machine or the device has."""
    check_encodable(splits, parts.encodings)
    with cfg.locating():
        check_batches(
            splits,
            parts.encodings,
            parts.model,
            memory_of(device),
            batch_size=cfg.train.batch_size,
            batch_pairs=cfg.train.batch_pairs,
            trains=cfg.train.mode == "custom",
            num_processes=num_processes,
            bytes_kept=4 if cfg.train.amp == "off" else 2,
        )


def compile_all_kernels(model: nn.Module) -> None:
    """Compile all kernels, or load them from the cache, before their first use. Log a note if this takes long.

    Raises ConfigError if `train.kernels` asks for kernels that the device of the model does not have.
    """
    note = threading.Timer(5, log.info, ["compiling kernels, once for this machine; it takes minutes on a busy one"])
    note.start()
    try:
        compile_kernels()
        prepare_kernels(model)
    finally:
        note.cancel()
