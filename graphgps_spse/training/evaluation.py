"""The forward pass of a batch, and the evaluation of a whole split."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.training.epoch_metrics import EpochMetrics
from graphgps_spse.training.guards import ConstantChannelGuard, FiniteGuard
from graphgps_spse.training.options import AMP_DTYPES
from graphgps_spse.training.processes import OneProcess
from graphgps_spse.training.task import Task

Forward = Callable[[GraphBatch], Tensor]


class Prediction(NamedTuple):
    """Loss and predictions of a batch, with the shares of all processes."""

    loss: Tensor
    """Scalar: the mean over the rows of the batch."""
    pred: Tensor
    """[R, dim_out], R graphs or nodes."""
    y: Tensor
    """[R, T]."""
    index_B: Tensor
    """The number of each graph in its split."""
    num_known: Tensor | int
    """Number of rows of which the loss is the mean; see `Task.known_rows`."""


class Predictor:
    """Computes loss and predictions of a batch. Each process computes its share, and all processes get the whole."""

    def __init__(self, *, task: Task, device: torch.device, amp: str, processes: OneProcess) -> None:
        """`amp` is a key of AMP_DTYPES: the type of the forward pass."""
        self.task, self.device, self.amp, self.processes = task, device, amp, processes

    def predict(self, batch: GraphBatch | None, forward: Forward) -> Prediction:
        """Return loss and predictions of a batch. None: this process has no share, as there are too few graphs."""
        own = None
        if batch is not None:
            batch = batch.to(self.device, non_blocking=True)
            own = (forward_batch(forward, batch, self.device, self.amp), batch.y, batch.index_B)
        pred, y, index_B = self.processes.gather_rows(own, self.device)
        return Prediction(self.task.loss(pred, y), pred, y, index_B, self.task.known_rows(y))

    def new_metrics(self) -> EpochMetrics:
        """Return the empty metrics of one pass over a split."""
        return EpochMetrics(self.task.new_metrics(self.device), self.device)


def forward_batch(forward: Forward, batch: GraphBatch, device: torch.device, amp: str) -> Tensor:
    """Return predictions [R, dim_out] of a batch on `device`, computed with automatic mixed precision `amp`.

    Predictions of a narrow type come back as float32.
    """
    dtype = AMP_DTYPES[amp]
    with nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype):
        pred = forward(batch)
    return pred.float() if pred.dtype == dtype else pred


@torch.inference_mode()
def evaluate(
    predictor: Predictor,
    forward: Forward,
    batches: Iterable[GraphBatch | None],
    *,
    split: str,
    epoch: int,
    after_batch: Callable[[], None],
    channels: ConstantChannelGuard,
) -> dict[str, float]:
    """Return loss, metrics and times of `forward` on the batches of a split.

    `forward` must be in evaluation mode. Calls `after_batch` after each batch. `channels` belongs to the model. Raises
    DivergedError, with split and epoch, if a loss is not finite, and DataError if a metric is undefined on the split.
    """
    metrics, guard = predictor.new_metrics(), FiniteGuard()
    for step, batch in enumerate(batches):
        if batch is not None:
            channels.watch(batch)
        found = predictor.predict(batch, forward)
        guard.watch("loss", step, found.loss, found.index_B)
        metrics.update(found.loss, found.pred, found.y, len(found.index_B), found.num_known)
        after_batch()
    guard.check(f"{split}, epoch {epoch}")
    channels.warn(split)
    # The first process decides: rounding may differ, and all must agree on the best epoch and on the schedule.
    return predictor.processes.broadcast(metrics.compute(split))
