"""One pass over a split as it runs: sums of loss, metrics and time, and a guard against values that are not finite."""

import time
from typing import Any

import torch
from torch import Tensor

from graphgps_spse.errors import DataError, DivergedError
from graphgps_spse.training.metrics import Accumulator


class Running:
    """Loss, metrics and seconds of a pass so far. Reading them waits for the device; adding a batch does not."""

    def __init__(self, metrics: Accumulator, device: torch.device) -> None:
        self.metrics, self.device = metrics, device
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.num_graphs = self.num_batches = 0
        self._seconds_before, self._started = 0.0, time.perf_counter()

    def update(self, loss: Tensor, pred: Tensor, y: Tensor, num_graphs: int) -> None:
        """Add one batch with its mean loss, its predictions [B or N, dim_out] and its targets [B or N, T]."""
        self.loss_sum += loss.detach().double() * num_graphs
        self.metrics.update(pred.detach(), y)
        self.num_graphs += num_graphs
        self.num_batches += 1

    def start_clock(self) -> None:
        """Count seconds from now, on top of those that `load` brought."""
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall time so far, that before a restart included."""
        return self._seconds_before + time.perf_counter() - self._started

    def mean_loss(self) -> float:
        """Return the mean over graphs; a node-level batch counts with its graphs, not its nodes."""
        return self.loss_sum.item() / self.num_graphs

    def compute(self, split: str) -> dict[str, float]:
        """Return loss, metrics and times. Raises DataError, naming the split, where a metric is undefined on it."""
        try:
            values = {"loss": self.mean_loss()} | self.metrics.compute()
        except DataError as err:
            raise DataError(f"{split} split: {err}") from err
        seconds = self.seconds
        times = {"time_epoch": seconds, "time_iter": seconds / self.num_batches}
        return values | times | {"graphs_per_second": self.num_graphs / seconds}

    def state(self) -> dict[str, Any]:
        """Return plain types and tensors that `load` takes back."""
        return {
            "loss_sum": self.loss_sum.item(),
            "num_graphs": self.num_graphs,
            "num_batches": self.num_batches,
            "seconds": self.seconds,
            "metrics": self.metrics.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.start_clock()
        self.loss_sum.fill_(state["loss_sum"])
        self.num_graphs, self.num_batches = state["num_graphs"], state["num_batches"]
        self._seconds_before = state["seconds"]
        self.metrics.load(state["metrics"])


class FiniteGuard:
    """Collects losses and gradient norms on the device; `check` reads them at once and names what is not finite.

    On the CPU the trainer checks before every optimiser step. On CUDA that would stall the device, so it checks at
    each log interval, and before anything is saved: a step that used a bad gradient never reaches the disk.
    """

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._places: list[tuple[str, int, Tensor]] = []

    def watch(self, what: str, step: int, value: Tensor, index_B: Tensor) -> None:
        """Remember a scalar of one step, and the graphs that it came from."""
        self._values.append(value.detach())
        self._places.append((what, step, index_B))

    def check(self, where: str) -> None:
        """Raise DivergedError if anything watched since the last check is not finite; `where` names split and epoch."""
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
