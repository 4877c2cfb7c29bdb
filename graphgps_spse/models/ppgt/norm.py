"""Adaptive RMS normalisation (Ma et al. 2025)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AdaptiveRMSNorm(nn.Module):
    """x / rms(x) * rms(a x + b), with vectors a, initially 0, and b, initially 1: rows may keep their magnitude."""

    def __init__(self, dim: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.scale, self.shift = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.ones(dim))

    def forward(self, x_RD: Tensor) -> Tensor:
        """Return [rows, D]."""
        magnitude_RD = torch.addcmul(self.shift, x_RD, self.scale)
        magnitude_R1 = (magnitude_RD.square().mean(-1, keepdim=True) + self.eps).sqrt()
        return F.rms_norm(x_RD, (x_RD.shape[-1],), eps=self.eps) * magnitude_R1
