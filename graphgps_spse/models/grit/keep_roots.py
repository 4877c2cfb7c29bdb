"""Weights of GRIT for comparisons of two implementations, whose rounding differs."""

import torch
from torch import nn

from graphgps_spse.models.grit.attention import GritAttention


def keep_roots_from_zero(model: nn.Module) -> None:
    """Change the weights of GRIT so that every signed root is about 1.

    Near 0 the gradient of a root is unbounded. With fresh weights, some roots are that near, and in float32 rounding
    alone changes the gradient by a tenth, so that wrong kernels could pass.
    """
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, GritAttention):
                for linear in (module.query, module.key, module.pair):
                    linear.weight.mul_(0.05)
                module.query.bias.fill_(1)  # q_i + k_j
                module.pair.bias.unflatten(0, (module.num_heads, 2, -1))[:, 0].fill_(1)  # w_ij
