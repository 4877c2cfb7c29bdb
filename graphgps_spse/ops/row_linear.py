"""Linear maps of many rows, which threads share on a CPU.

The rows are divided into blocks, whose number does not depend on the number of threads. Each block writes its gradients
of weight and bias to memory of its own, and these are summed in the order of the blocks. So the bits do not depend on
the number of threads either.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.ops.threads import threads_walk, walk

BLOCK_ROWS = 1024
"""Least number of rows of a block. A product of fewer rows takes little longer than a thread needs to begin it."""
MOST_BLOCKS = 16


def row_linear(x_RD: Tensor, weight_WD: Tensor, bias_W: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias, [R, W]: torch.nn.functional.linear, divided among threads if it is worth it.

    Divided maps have no second derivatives.
    """
    is_divided = (
        not torch.compiler.is_compiling()
        and threads_walk()
        and x_RD.device.type == "cpu"
        and x_RD.dim() == 2
        and x_RD.shape[0] >= 2 * BLOCK_ROWS
        and x_RD.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )
    return _Divided.apply(x_RD, weight_WD, bias_W) if is_divided else F.linear(x_RD, weight_WD, bias_W)


class _Divided(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y, transposed = x.new_empty(x.shape[0], weight.shape[0]), weight.t()

        def visit(block: tuple[int, slice]) -> None:
            rows = block[1]
            if bias is None:
                torch.mm(x[rows], transposed, out=y[rows])
            else:
                torch.addmm(bias, x[rows], transposed, out=y[rows])

        walk(_blocks(x.shape[0]), lambda: visit)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (of_x, of_weight, _) = ctx.saved_tensors, ctx.needs_input_grad
        blocks = _blocks(x.shape[0])
        grad_x = torch.empty_like(x) if of_x else None
        grad_weight = weight.new_empty(len(blocks), *weight.shape) if of_weight else None
        grad_bias = weight.new_empty(len(blocks), weight.shape[0]) if ctx.has_bias else None

        def visit(block: tuple[int, slice]) -> None:
            number, rows = block
            if grad_x is not None:
                torch.mm(grad_y[rows], weight, out=grad_x[rows])
            if grad_weight is not None:
                torch.mm(grad_y[rows].t(), x[rows], out=grad_weight[number])
            if grad_bias is not None:
                torch.sum(grad_y[rows], 0, out=grad_bias[number])

        walk(blocks, lambda: visit)
        return grad_x, *(None if parts is None else parts.sum(0) for parts in (grad_weight, grad_bias))


def _blocks(num_rows: int) -> list[tuple[int, slice]]:
    """Return the number and the rows of each block."""
    count = min(MOST_BLOCKS, num_rows // BLOCK_ROWS)
    return [(b, slice(num_rows * b // count, num_rows * (b + 1) // count)) for b in range(count)]
