"""The training loop: epochs of steps, evaluation, the best epoch, and a state that survives any interruption."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.errors import RESUMABLE, CheckpointError, ConfigError, DivergedError, LoaderError, StoppedError
from graphgps_spse.seeding import capture_rng, restore_rng
from graphgps_spse.training.checkpoint import CheckpointStore
from graphgps_spse.training.history import Best, EpochRecord, FitResult
from graphgps_spse.training.loggers import Logger
from graphgps_spse.training.optim import Scheduler
from graphgps_spse.training.options import AMP_DTYPES, TrainOptions
from graphgps_spse.training.processes import OneProcess
from graphgps_spse.training.running import FiniteGuard, Running
from graphgps_spse.training.signals import StopSignals
from graphgps_spse.training.tasks import Task

log = logging.getLogger(__name__)

LEAST_LOSS_SCALE = 1e-4
"""fp16's loss scale starts at 65,536 and halves with each step skipped for an overflow: below this none was taken."""


class Loader(Protocol):
    """Batches of a split. Their order follows from the run's seed and the epoch alone.

    It draws from no global generator, so that those stand at a resumed step where they stood at the first pass.
    """

    num_graphs: int
    batch_size: int
    """Graphs of a batch, of all processes together; the last of an epoch may have fewer, or one more."""

    def num_batches(self, epoch: int) -> int:
        """Return how many batches an epoch has."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[GraphBatch | None]:
        """Yield the batches of an epoch from number `start` on, or this process's share; None where that is empty."""


class Prediction(NamedTuple):
    """What one batch gave, the shares of all processes together."""

    loss: Tensor
    pred: Tensor
    y: Tensor
    index_B: Tensor


class Trainer:
    """Trains a model on one split, measures it on two others, and can be stopped and started again at any moment.

    Everything that the course of training depends on is in `state()`; on one CPU a run that was interrupted, even by
    SIGKILL, ends with the same weights, metrics and history to the last bit as one that was not.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        task: Task,
        optimizer: torch.optim.Optimizer,
        scheduler: Scheduler,
        loaders: Mapping[str, Loader],
        checkpoints: CheckpointStore,
        device: torch.device | str,
        options: TrainOptions,
        signature: dict[str, Any],
        about: dict[str, Any] | None = None,
        loggers: Sequence[Logger] = (),
        processes: OneProcess | None = None,
    ) -> None:
        """`signature` and `about` go into every checkpoint and are compared with it (`checkpoint.check_origin`)."""
        self.device = torch.device(device)
        if options.amp != "off" and self.device.type != "cuda":
            raise ConfigError(
                f"train.amp: {options.amp} needs a CUDA device, and this run is on {self.device}; set off"
            )
        self.model, self.task, self.optimizer, self.scheduler = model, task, optimizer, scheduler
        self.loaders, self.checkpoints, self.loggers = loaders, checkpoints, loggers
        self.options, self.signature, self.about = options, signature, about
        self.processes = OneProcess() if processes is None else processes
        self.processes.synchronise_norms(model)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.num_parameters = sum(p.numel() for p in model.parameters())
        self.forward = torch.compile(model, dynamic=True) if options.compile else model
        self.forward_in_training = self.processes.wrap(self.forward)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.amp == "fp16")
        self.epoch = self.step = 0
        self.history: list[EpochRecord] = []
        self.best: Best | None = None
        self.running = self._new_running()
        self._group: list[Tensor] = []  # graphs of the batches since the last step
        self.guard = FiniteGuard()
        self.stop = StopSignals()
        self._saved_at = time.monotonic()
        self._reported = 0

    def fit(self) -> FitResult:
        """Train to the last epoch, from the latest checkpoint if there is one.

        Raises StoppedError when a signal asked for it (the state is saved), DivergedError when the loss or the gradient
        is not finite, CheckpointError when no checkpoint can be trusted or written.
        """
        self._resume()
        status = "failed"
        try:
            with self.stop:
                for logger in self.loggers:
                    logger.start(self.history)
                while self.epoch < self.options.max_epoch:
                    train = self._train_epoch()
                    evaluations = {split: self.evaluate(split) for split in ("val", "test") if self._evaluates()}
                    self._finish_epoch(train, evaluations)
                result = FitResult.of(self.history)
                for logger in self.loggers:
                    logger.finish(result)
            status = "finished"
        except StoppedError:
            status = "stopped"
            raise
        except LoaderError as err:
            status = "stopped" if err.exit_code == RESUMABLE else "failed"
            raise self._after_loss(err) from err
        finally:
            for logger in self.loggers:
                logger.close(status)
        return result

    def _train_epoch(self) -> dict[str, float]:
        """Train on the rest of an epoch; return its loss and metrics, which are of the predictions made on the way."""
        self.model.train()
        loader = self.loaders["train"]
        self._check_shares(loader)
        num_steps = loader.num_batches(self.epoch)
        self._reported = self.step
        self.running.start_clock()
        for batch in loader.epoch(self.epoch, self.step):
            completes = len(self._group) + 1 == self.options.batch_accumulation or self.step + 1 == num_steps
            self._group.append(self._backward(batch, completes))
            self.step += 1
            if completes:
                self._update(self._group)
                self._group = []
                self._between_steps(num_steps)
        self.guard.check(f"train, epoch {self.epoch}")
        if self.scaler.is_enabled() and self.scaler.get_scale() < LEAST_LOSS_SCALE:
            raise DivergedError(
                f"train, epoch {self.epoch}: no step has a finite gradient any more (fp16's loss scale fell to "
                f"{self.scaler.get_scale():.1g}). Set train.amp to bf16 or off, or lower optim.base_lr"
            )
        rate = self.optimizer.param_groups[0]["lr"]
        return self.running.compute("train") | {"params": self.num_parameters, "lr": rate}

    def _backward(self, batch: GraphBatch | None, completes: bool) -> Tensor:
        """Add the gradient of one batch, of its mean loss or of the sum where many make a step; return its graphs."""
        with nullcontext() if completes else self.processes.without_sum(self.forward_in_training):
            found = self._predict(batch, self.forward_in_training)
            self.guard.watch("loss", self.step, found.loss, found.index_B)
            weight = len(found.index_B) if self.options.batch_accumulation > 1 else 1
            # Times the number of processes, as DistributedDataParallel takes the mean where the sum is due.
            self.scaler.scale(found.loss * (weight * self.processes.count)).backward()
        self.running.update(found.loss, found.pred, found.y, len(found.index_B))
        return found.index_B

    def _predict(self, batch: GraphBatch | None, forward: Callable[[GraphBatch], Tensor]) -> Prediction:
        """Return loss and predictions of a batch, of which this process computes its share."""
        own = None
        if batch is not None:  # or there are fewer graphs than processes
            batch = batch.to(self.device, non_blocking=True)
            dtype = AMP_DTYPES[self.options.amp]
            with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
                pred = forward(batch)
            own = (pred.float() if pred.dtype == dtype else pred, batch.y, batch.index_B)
        pred, y, index_B = self.processes.gather_rows(own, self.device)
        return Prediction(self.task.loss(pred, y), pred, y, index_B)

    def _update(self, group: list[Tensor]) -> None:
        """Take one optimiser step with the gradient of a group of batches, given by their graphs."""
        self.scaler.unscale_(self.optimizer)
        grads = [p.grad for p in self.parameters if p.grad is not None]
        if self.options.batch_accumulation > 1:
            torch._foreach_div_(grads, float(sum(len(index_B) for index_B in group)))
        norm = torch.nn.utils.get_total_norm(grads)
        if self.options.max_grad_norm:
            torch.nn.utils.clip_grads_with_norm_(self.parameters, self.options.max_grad_norm, norm)
        if not self.scaler.is_enabled():  # with fp16 an overflow is ordinary: the scaler skips the step and scales down
            self.guard.watch("gradient norm", self.step - 1, norm, torch.cat(group))
        if self.device.type == "cpu":
            self.guard.check(f"train, epoch {self.epoch}")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def _between_steps(self, num_steps: int) -> None:
        """Report, save and stop where it is time to: the model is whole here, and so is the order of the data."""
        if self.step - self._reported >= self.options.log_interval:
            self._reported = self.step
            self.guard.check(f"train, epoch {self.epoch}")
            for logger in self.loggers:
                logger.progress(self.epoch, self.step, num_steps, self.running.mean_loss())
        self._stop_if_asked()
        due = 0 < self.options.ckpt_minutes <= (time.monotonic() - self._saved_at) / 60
        if self.processes.agree(due):
            self._save()

    def _check_shares(self, loader: Loader) -> None:
        """Raise ConfigError where a training batch has no graph for some process: each must take part in BatchNorm."""
        smallest = loader.num_graphs % loader.batch_size or loader.batch_size
        if smallest < self.processes.count:
            raise ConfigError(
                f"train.batch_size: {loader.batch_size} leaves {smallest} of {loader.num_graphs} graphs to the last "
                f"batch of an epoch, too few for {self.processes.count} processes; choose another"
            )

    def _evaluates(self) -> bool:
        last = self.epoch + 1 == self.options.max_epoch
        return self.epoch == 0 or last or (self.epoch + 1) % self.options.eval_period == 0

    @torch.inference_mode()
    def evaluate(self, split: str) -> dict[str, float]:
        """Return loss, metrics and times of the current weights on a split. Raises DivergedError on a bad loss."""
        self.model.eval()
        running, guard = self._new_running(), FiniteGuard()
        for step, batch in enumerate(self.loaders[split].epoch(0)):
            found = self._predict(batch, self.forward)
            guard.watch("loss", step, found.loss, found.index_B)
            running.update(found.loss, found.pred, found.y, len(found.index_B))
            self._stop_if_asked()
        guard.check(f"{split}, epoch {self.epoch}")
        # From the first process: others may round otherwise, and must not differ on the best epoch or the schedule.
        return self.processes.agree(running.compute(split) | {"params": self.num_parameters})

    def _finish_epoch(self, train: dict[str, float], evaluations: dict[str, dict[str, float]]) -> None:
        """Record the epoch, step the schedule, and save."""
        improved = bool(evaluations) and self._is_best(evaluations["val"][self.task.metric])
        if improved:
            self.best = Best(self.epoch, evaluations["val"][self.task.metric])
        assert self.best is not None, "the first epoch is always evaluated"
        record = EpochRecord(self.epoch, {"train": train, **evaluations}, self.best.epoch)
        seconds = sum(past.seconds for past in self.history) + record.seconds
        train["eta"] = seconds / (self.epoch + 1) * (self.options.max_epoch - self.epoch - 1)
        self.history.append(record)
        self._step_schedule()
        self.epoch, self.step, self.running = self.epoch + 1, 0, self._new_running()
        if improved or self.epoch % self.options.ckpt_period == 0 or self.epoch == self.options.max_epoch:
            self._save()
        if improved:
            self._save_best()
        for logger in self.loggers:
            logger.epoch(record)
        if self.epoch < self.options.max_epoch:
            self._stop_if_asked()

    def _is_best(self, value: float) -> bool:
        if self.best is None:
            return True
        return value < self.best.value if self.task.direction == "min" else value > self.best.value

    def _step_schedule(self) -> None:
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.scheduler.step(next(r.splits["val"]["loss"] for r in reversed(self.history) if "val" in r.splits))
        else:
            self.scheduler.step()

    def _stop_if_asked(self) -> None:
        received = next((name for name in self.processes.gather(self.stop.received) if name), "")
        if received:
            place = "there" if self._save() else "the last checkpoint"
            at = f"epoch {self.epoch}, step {self.step}"
            raise StoppedError(f"stopped by {received} in {at}; the same command goes on from {place}")

    def _after_loss(self, err: LoaderError) -> StoppedError | LoaderError:
        """Save, if no step is half done and no other process need take part; return what to tell."""
        saved = not self._group and self.processes.count == 1 and self._save()
        goes_on = f"the same command goes on from {'there' if saved else 'the last checkpoint'}"
        at = f"epoch {self.epoch}, step {self.step}"
        if self.stop.received:  # to all processes: the loader's have ended before this one looked
            return StoppedError(f"stopped by {self.stop.received} in {at}; {goes_on}")
        return LoaderError(f"{err}. Stopped in {at}; {goes_on}", err.exit_code)

    def _new_running(self) -> Running:
        return Running(self.task.accumulator(self.device), self.device)

    def state(self) -> dict[str, Any]:
        """Return everything that the rest of training depends on, as plain types and tensors."""
        return {
            "signature": self.signature,
            "about": self.about,
            "epoch": self.epoch,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": self.processes.gather(capture_rng()),
            "running": self.running.state(),
            "best": None if self.best is None else tuple(self.best),
            "history": [record.to_plain() for record in self.history],
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.running = self._new_running()
        self.running.load(state["running"])
        self.best = None if state["best"] is None else Best(*state["best"])
        self.history = [EpochRecord.from_plain(plain) for plain in state["history"]]
        restore_rng(state["rng"][self.processes.rank])

    def _save(self) -> bool:
        self.guard.check(f"train, epoch {self.epoch}")
        self._saved_at = time.monotonic()
        state = self.state()
        return self.processes.agree(self.processes.is_first and self.checkpoints.save(state))

    def _save_best(self) -> None:
        """Save the weights of the epoch just finished, which is the best.

        This comes after the checkpoint, which holds the same weights: `_resume` makes up for a kill between the two.
        """
        if not self.processes.is_first:
            return
        best = {"epoch": self.history[-1].epoch, "splits": self.history[-1].splits}
        origin = {"signature": self.signature, "about": self.about}
        self.checkpoints.save_best({**origin, "model": self.model.state_dict(), **best})

    def load_best(self) -> int:
        """Load the weights of the best epoch, for `evaluate`, and return that epoch."""
        first = self.processes.is_first
        state = self.processes.agree(self.checkpoints.load_best(self.signature, self.about) if first else None)
        try:
            self.model.load_state_dict(state["model"])
            return state["epoch"]
        except (KeyError, RuntimeError) as err:
            raise CheckpointError(
                f"the best epoch in {self.checkpoints.run_dir} does not fit this model: {err}"
            ) from err

    def _resume(self) -> None:
        first = self.processes.is_first
        state = self.processes.agree(self.checkpoints.load_latest(self.signature, self.about) if first else None)
        if state is None:
            return
        if len(state["rng"]) != self.processes.count:
            raise CheckpointError(
                f"the checkpoint in {self.checkpoints.run_dir} was written by {len(state['rng'])} processes and this "
                f"run has {self.processes.count}; a run goes on with as many as it began with"
            )
        try:
            self.load_state(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as err:
            raise CheckpointError(f"the checkpoint in {self.checkpoints.run_dir} does not fit this run: {err}") from err
        num_steps = self.loaders["train"].num_batches(self.epoch)
        log.info("resuming in epoch %d at step %d of %d", self.epoch, self.step, num_steps)
        if first and self.best is not None and self.checkpoints.best_epoch() != self.best.epoch:
            if self.step == 0 and self.best.epoch == self.epoch - 1:
                self._save_best()
            else:
                log.warning("best.pt does not hold epoch %d, the best so far; its weights are lost", self.best.epoch)
