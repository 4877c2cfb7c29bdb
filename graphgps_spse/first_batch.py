"""The first batch of a run on a GPU, computed by the kernels of the device and by PyTorch alone.

Kernels that were compiled for this very device may be wrong or fail where they were right elsewhere. So a run compares
both before its first step, and goes on without the kernels where they disagree.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch, GraphDataset
from graphgps_spse.errors import ConfigError
from graphgps_spse.memory import is_shortage
from graphgps_spse.ops.triton_launch import launch_errors
from graphgps_spse.training.evaluation import forward_batch

log = logging.getLogger(__name__)

Loss = Callable[[Tensor, Tensor], Tensor]

MAX_PAIRS = 1 << 15
"""Pairs of the graphs that are compared, at most: PyTorch alone takes more memory than the kernels."""
TOLERANCE = {"off": 0.01, "bf16": 0.1, "fp16": 0.1}
"""Largest relative difference by `train.amp`. The signed root of GRIT amplifies the rounding of its gradient."""


def check_first_batch(
    model: nn.Module, graphs: GraphDataset, numbers: list[int], loss: Loss, device: torch.device, *, amp: str
) -> dict[str, Any]:
    """Compare the kernels with PyTorch alone on graphs of the first batch, given by `numbers`; return a record.

    Where they differ, or the kernels cannot run, the model is switched to PyTorch alone, with a warning. Raises
    ConfigError in that case if `train.kernels` is fused. Weights, running statistics and random generators stay as they
    are. On the CPU, and where `train.kernels` is plain, nothing is compared.
    """
    switched = [module for module in model.modules() if hasattr(module, "kernels")]
    wanted = {module.kernels for module in switched} - {"plain"}
    if device.type == "cpu" or not wanted:
        return {}
    chosen = few_graphs(graphs, numbers)
    batch = graphs.batch(chosen).to(device)
    try:
        differences = compare(model, batch, loss, device, amp=amp)
    except (RuntimeError, *launch_errors()) as err:
        if is_shortage(err):
            raise
        reason = f"the kernels cannot run on {device}: {str(err).strip().splitlines()[0]}"
        record: dict[str, Any] = {"kernels": "plain", "reason": reason}
    else:
        record = {"kernels": "fused", "differences": differences}
        if all(value <= TOLERANCE[amp] for value in differences.values()):
            return record
        text = ", ".join(f"{name} {value:.2g}" for name, value in differences.items())
        reason = f"the kernels disagree with PyTorch alone on the first batch, relative differences: {text}"
        record |= {"kernels": "plain", "reason": reason}
    if "fused" in wanted:
        raise ConfigError(f"train.kernels: fused, but {reason}; set train.kernels to plain")
    log.warning("%s. This run goes on with train.kernels=plain; python scripts/check_gpu.py tells more", reason)
    for module in switched:
        module.kernels = "plain"
    return record


def few_graphs(graphs: GraphDataset, numbers: list[int]) -> list[int]:
    """Return the smallest of some graphs, together at most MAX_PAIRS pairs, but at least two graphs."""
    size_B = graphs.sizes_G.numpy()[numbers]
    order_B = np.argsort(size_B, kind="stable")
    count = int(np.searchsorted(np.cumsum(size_B[order_B] ** 2), MAX_PAIRS, side="right"))
    return [numbers[b] for b in order_B[: max(2, count)].tolist()]


def compare(model: nn.Module, batch: GraphBatch, loss: Loss, device: torch.device, *, amp: str) -> dict[str, float]:
    """Return the relative differences between kernels and PyTorch alone, of predictions and of all gradients.

    Norms use the statistics of the batch, as in training, and there is no dropout. 0 where both are not finite.
    """
    results = []
    for kernels in ("auto", "plain"):
        with _as_in_training(model, kernels):
            predicted = forward_batch(model, batch, device, amp)
            weights = [p for p in model.parameters() if p.requires_grad]
            gradients = torch.autograd.grad(loss(predicted, batch.y), weights, allow_unused=True)
            flat = [g.flatten().double() for g in gradients if g is not None]
            results.append({"predictions": predicted.detach().double(), "gradients": torch.cat(flat)})
    ours, theirs = results
    return {name: _difference(ours[name], theirs[name]) for name in ours}


def _difference(ours: Tensor, theirs: Tensor) -> float:
    """Return the norm of the difference in units of the norm of `theirs`; infinite if `ours` alone is not finite."""
    if not bool(theirs.isfinite().all()):
        return 0.0  # a model that has diverged has nothing to compare
    value = float((ours - theirs).norm() / theirs.norm().clamp(min=torch.finfo(torch.float32).tiny))
    return value if np.isfinite(value) else float("inf")


@contextmanager
def _as_in_training(model: nn.Module, kernels: str) -> Iterator[None]:
    """Let norms use the batch and nothing drop out, with the given kernels; afterwards all is as before."""
    modes = {module: module.training for module in model.modules()}
    chosen = {module: module.kernels for module in model.modules() if hasattr(module, "kernels")}
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    model.eval()
    for module in modes:
        if any(True for _ in module.buffers(recurse=False)) and not list(module.children()):
            module.train()
    for module in chosen:
        module.kernels = kernels  # type: ignore[assignment]
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for module, before in chosen.items():
            module.kernels = before
        with torch.no_grad():
            for name, value in model.named_buffers():
                value.copy_(buffers[name])
