"""How long to train, how to step, and how often to look: the trainer's settings, read once."""

from dataclasses import dataclass
from typing import Any

import torch

from graphgps_spse.errors import ConfigError
from graphgps_spse.options import Options, option
from graphgps_spse.training.determinism import DeterminismOptions
from graphgps_spse.training.optim import ScheduleOptions

AMP_DTYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class GradientOptions(Options, section="optim"):
    """How gradients become a step."""

    batch_accumulation: int = option(1, "batches whose mean gradient over graphs makes one step", at_least=1)
    clip_grad_norm: bool = option(True, "clip the gradient of all parameters to a 2-norm")
    clip_grad_norm_value: float = option(1.0, "largest 2-norm of the gradient", above=0)


@dataclass(frozen=True)
class TrainOptions:
    """How long to train, how to step, and how often to look."""

    max_epoch: int
    eval_period: int = 1
    """Epochs between evaluations; the first and the last epoch are always evaluated."""
    ckpt_period: int = 1
    """Epochs between checkpoints; a new best epoch is always saved."""
    ckpt_minutes: float = 0.0
    """Minutes after which an epoch is saved midway; 0 for never."""
    log_interval: int = 50
    """Steps between reads of the loss."""
    batch_accumulation: int = 1
    """Batches whose mean gradient over graphs makes one step."""
    max_grad_norm: float = 0.0
    """Clip the gradient of all parameters to this 2-norm; 0 for never."""
    amp: str = "off"
    compile: bool = False
    deterministic: bool = False

    @classmethod
    def from_cfg(cls, cfg: Any) -> "TrainOptions":
        """Read the keys of `train` and `optim`. Raises ConfigError for values that make no sense."""
        train, gradient = cfg.train, GradientOptions.from_cfg(cfg)
        options = cls(
            max_epoch=ScheduleOptions.from_cfg(cfg).max_epoch,
            eval_period=train.eval_period,
            ckpt_period=train.ckpt_period,
            ckpt_minutes=train.ckpt_minutes,
            log_interval=train.log_interval,
            batch_accumulation=gradient.batch_accumulation,
            max_grad_norm=gradient.clip_grad_norm_value if gradient.clip_grad_norm else 0.0,
            amp=train.amp,
            compile=train.compile,
            deterministic=DeterminismOptions.from_cfg(cfg).deterministic,
        )
        for key in ("train.eval_period", "train.ckpt_period", "train.log_interval"):
            value = getattr(options, key.split(".")[1])
            if value < 1:
                raise ConfigError(f"{key}: {value} is below 1")
        if options.amp not in AMP_DTYPES:
            raise ConfigError(f"train.amp: '{options.amp}' is none of {', '.join(AMP_DTYPES)}")
        return options
