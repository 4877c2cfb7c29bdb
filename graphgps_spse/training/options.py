"""How long to train, how to step, and how often to look: the trainer's settings, read once."""

from dataclasses import dataclass
from typing import Any

import torch

from graphgps_spse.errors import ConfigError

AMP_DTYPES = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


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

    @classmethod
    def from_cfg(cls, cfg: Any) -> "TrainOptions":
        """Read the keys of `train` and `optim`. Raises ConfigError for values that make no sense."""
        train, optim = cfg.train, cfg.optim
        options = cls(
            max_epoch=optim.max_epoch,
            eval_period=train.eval_period,
            ckpt_period=train.ckpt_period,
            ckpt_minutes=train.ckpt_minutes,
            log_interval=train.log_interval,
            batch_accumulation=optim.batch_accumulation,
            max_grad_norm=optim.clip_grad_norm_value if optim.clip_grad_norm else 0.0,
            amp=train.amp,
            compile=train.compile,
        )
        positive = ("optim.max_epoch", "optim.batch_accumulation")
        for key in (*positive, "train.eval_period", "train.ckpt_period", "train.log_interval"):
            value = getattr(options, key.split(".")[1])
            if value < 1:
                raise ConfigError(f"{key}: {value} is below 1")
        if optim.clip_grad_norm and options.max_grad_norm <= 0:
            raise ConfigError(f"optim.clip_grad_norm_value: {options.max_grad_norm} is not above 0")
        if options.amp not in AMP_DTYPES:
            raise ConfigError(f"train.amp: '{options.amp}' is none of {', '.join(AMP_DTYPES)}")
        return options
