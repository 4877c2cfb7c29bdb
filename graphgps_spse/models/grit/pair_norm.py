"""BatchNorm of GRIT's pair features, from column statistics that ops/grit_pairs computes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Moments = Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor, Tensor]]
"""Maps mean [D], biased variance [D] and number of rows of one process to those of all processes."""


class PairNorm(nn.Module):
    """BatchNorm of pair features as a scale and a shift, computed from given column statistics."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, dim: int, *, momentum: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.moments: Moments | None = None
        self.moments_of: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]] | None = None
        """As in BatchNormOfMoments: set where some pairs do not count, so that kernels cannot compute statistics."""

    def synchronise(self, moments: Moments) -> None:
        """Use the statistics that `moments` returns, those of all processes of a run, in place of one process's own."""
        self.moments = moments

    def forward(self, mean_D: Tensor | None, var_D: Tensor | None, num_rows: int | Tensor) -> tuple[Tensor, Tensor]:
        """Return scale and shift, [D] each, from mean and biased variance; if None, from the running statistics."""
        if mean_D is None or var_D is None:
            mean_D, var_D = self.running_mean, self.running_var
        else:
            if self.moments is not None:
                mean_D, var_D, num_rows = self.moments(mean_D, var_D, num_rows)
            with torch.no_grad():
                self.running_mean.lerp_(mean_D, self.momentum)
                self.running_var.lerp_(var_D * (num_rows / (num_rows - 1)), self.momentum)
                self.num_batches_tracked += 1
        scale_D = self.weight * torch.rsqrt(var_D + self.eps)
        return scale_D, self.bias - mean_D * scale_D
