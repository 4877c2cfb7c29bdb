"""Checks that stop a training before it wastes time or saves bad weights."""

import torch
from torch import Tensor

from graphgps_spse.errors import ConfigError, DivergedError

LEAST_LOSS_SCALE = 1e-4
"""The loss scale of fp16 starts at 65,536 and halves with each skipped step. Below this value no step succeeded."""


class FiniteGuard:
    """Collects losses and gradient norms on the device, and finds the first that is not finite.

    On the CPU the trainer checks before every optimiser step. On CUDA that would stall the device, so the trainer
    checks at each log interval and before every save: weights from a bad gradient never reach the disk.
    """

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._places: list[tuple[str, int, Tensor]] = []

    def watch(self, what: str, step: int, value: Tensor, index_B: Tensor) -> None:
        """Remember a scalar of one step and the graphs of this step, index_B: their numbers in the split."""
        self._values.append(value.detach())
        self._places.append((what, step, index_B))

    def check(self, where: str) -> None:
        """Raise DivergedError if a value since the last check is not finite. `where` names split and epoch."""
        if not self._values:
            return
        finite = torch.stack([value.double() for value in self._values]).isfinite()
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0])
            what, step, index_B = self._places[first]
            raise DivergedError(
                f"{where}, step {step}: the {what} is {self._values[first].item()}. The graphs of that step, by their "
                f"number in the split: {index_B.tolist()}. Look at them, or lower optim.base_lr"
            )
        self._values.clear()
        self._places.clear()


def check_loss_scale(scaler: torch.amp.GradScaler, where: str) -> None:
    """Raise DivergedError if the loss scale of fp16 shows that every step was skipped for an infinite gradient."""
    if scaler.is_enabled() and scaler.get_scale() < LEAST_LOSS_SCALE:
        raise DivergedError(
            f"{where}: no step has a finite gradient any more (fp16's loss scale fell to {scaler.get_scale():.1g}). "
            "Set train.amp to bf16 or off, or lower optim.base_lr"
        )


def check_shares(num_graphs: int, batch_size: int, num_processes: int) -> None:
    """Raise ConfigError if a training batch has fewer graphs than the run has processes.

    BatchNorm needs rows from every process.
    """
    smallest = num_graphs % batch_size or batch_size
    if smallest < num_processes:
        raise ConfigError(
            f"train.batch_size: {batch_size} leaves {smallest} of {num_graphs} graphs to the last batch of an epoch, "
            f"too few for {num_processes} processes; choose another"
        )
