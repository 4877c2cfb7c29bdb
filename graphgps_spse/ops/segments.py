"""Gathers of rows, and sums and maxima over runs of consecutive rows: plain PyTorch, for every device.

On a CPU, `embedding_bag` adds the rows up: in the order of `segment_reduce`, so to the same bits, in an eighth of the
time.

Sums run over contiguous rows in a fixed order, forward and backward, so equal input gives equal bits on every device.
Contract: `count_N` [N] int64 are the lengths of the runs, which cover all rows of x in order; a run may be empty.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def widened(x: Tensor) -> Tensor:
    """Return x in float32 where it is narrower: long sums and exponentials lose too much in half precision."""
    return x.float() if x.dtype.itemsize < 4 else x


def sum_rows(x_RD: Tensor, count_N: Tensor) -> Tensor:
    """Return the sum of each run of rows, [N, D]; zero for an empty run; in float32 if x is narrower."""
    x_RD = widened(x_RD).contiguous()
    return _SumRows.apply(x_RD, count_N) if _has_bags(x_RD) else sum_leading_rows(x_RD, count_N)


def sum_leading_rows(x_RD: Tensor, count_N: Tensor) -> Tensor:
    """Return the sum of each run of rows, [N, D], as `sum_rows` does, where rows may follow the last run."""
    return torch.segment_reduce(x_RD, "sum", lengths=count_N, unsafe=True)


def _has_bags(x_RD: Tensor) -> bool:
    """Whether `embedding_bag` adds up rows of this device, shape and type."""
    return x_RD.device.type == "cpu" and x_RD.dim() == 2 and x_RD.numel() > 0 and x_RD.is_floating_point()


def _sum_bags(x_RD: Tensor, index_R: Tensor, count_N: Tensor) -> Tensor:
    """Return the sum of each run of x[index], [N, D], where `_has_bags` holds."""
    return F.embedding_bag(index_R, x_RD, count_N.cumsum(0) - count_N, mode="sum")


class _SumRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_RD: Tensor, count_N: Tensor) -> Tensor:
        ctx.count_N, ctx.num_rows = count_N, x_RD.shape[0]  # `len` would bind torch.compile to the size of one batch
        return _sum_bags(x_RD, torch.arange(ctx.num_rows), count_N)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[Tensor, None]:
        return grad_ND.repeat_interleave(ctx.count_N, dim=0, output_size=ctx.num_rows), None


def max_rows(x_RD: Tensor, count_N: Tensor) -> Tensor:
    """Return the maximum of each run of rows, [N, D], in the type of x."""
    return torch.segment_reduce(x_RD, "max", lengths=count_N, unsafe=True)


def gather_rows(x_ND: Tensor, index_R: Tensor, order_R: Tensor | None, count_N: Tensor) -> Tensor:
    """Return rows of x by index, [R, D].

    Row n of x occurs `count_N[n]` times in `index_R` [R]. The gradient is a sum over runs of rows rather than an atomic
    scatter: `order_R` [R] sorts `index_R`; None where it is sorted. Backward keeps `order_R` and `count_N` alone.
    """
    return _Gather.apply(x_ND, index_R, order_R, count_N)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, index_R: Tensor, order_R: Tensor | None, count_N: Tensor) -> Tensor:
        ctx.order_R, ctx.count_N = order_R, count_N
        return x_ND.index_select(0, index_R)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_RD: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.order_R is not None and grad_RD.dtype.itemsize >= 4 and _has_bags(grad_RD):
            return _sum_bags(grad_RD.contiguous(), ctx.order_R, ctx.count_N), None, None, None
        grad_RD = grad_RD if ctx.order_R is None else grad_RD.index_select(0, ctx.order_R)
        return sum_rows(grad_RD, ctx.count_N).to(grad_RD.dtype), None, None, None
