"""Standardised targets: mean and standard deviation of each target over the training rows."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)


class TargetScale(nn.Module):
    """Maps standardised predictions to the units of the targets: pred * std + mean.

    `mean` and `std` are buffers [T] of the model, so that checkpoints hold them and predictions need no data. Before
    `fit` they are 0 and 1, which changes no bit.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, num_targets: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_targets))
        self.register_buffer("std", torch.ones(num_targets))

    def fit(self, y: Tensor, names: Sequence[str]) -> None:
        """Set mean and standard deviation to those of the known rows of y [R, T]; NaN is unknown.

        A target whose values are all equal gets 1 as its deviation, with a warning. Each target must have a known
        value. `names` are those of the targets, for messages.
        """
        y = y.double().cpu()
        num_known = (~torch.isnan(y)).sum(0)
        mean = y.nansum(0) / num_known
        std = ((y - mean).square().nansum(0) / num_known).sqrt()
        for name, center, spread in zip(names, mean.tolist(), std.tolist()):
            if spread == 0:
                log.warning("train split, target %s: all values are %g, so there is nothing to learn", name, center)
            else:
                log.info("target %s is standardised: mean %g and deviation %g in train", name, center, spread)
        self.mean.copy_(mean)
        self.std.copy_(torch.where(std == 0, 1.0, std))

    def forward(self, pred: Tensor) -> Tensor:
        """Return standardised predictions [R, T] in the units of the targets."""
        return pred * self.std + self.mean

    def standardise(self, values: Tensor) -> Tensor:
        """Return targets or predictions [R, T] with mean 0 and deviation 1 over the training rows."""
        return (values - self.mean) / self.std

    def extra_repr(self) -> str:
        """Return the number of targets, for `--describe`."""
        return f"{len(self.mean)} targets"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load both buffers. Checkpoints of versions that did not standardise hold none, and stay as they were."""
        if not any(key.startswith(prefix) for key in state_dict):
            log.info(
                "the weights come from a version that did not standardise targets; training continues without "
                "standardisation"
            )
            state_dict |= {f"{prefix}mean": torch.zeros_like(self.mean), f"{prefix}std": torch.ones_like(self.std)}
        super()._load_from_state_dict(state_dict, prefix, *args)


def add_target_scale(model: nn.Module, scale: TargetScale) -> None:
    """Make `scale` a part of a model, whose output then has the units of the targets."""
    model.target_scale = scale
    model.register_forward_hook(_scale_output)


def _scale_output(model: nn.Module, inputs: Any, output: Any) -> Any:
    """Scale the predictions, which are the output of a model or the first of several outputs."""
    scale = model.target_scale
    assert isinstance(scale, TargetScale), "add_target_scale sets it"
    return (scale(output[0]), *output[1:]) if isinstance(output, tuple) else scale(output)
