"""The order of columns that the kernels of pairs read: (position in head, head), so that their loops run over heads.

The order of a few small matrices takes as many launches on a GPU as a layer's arithmetic, so layers share them.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def by_position(weights: Tensor, num_heads: int, parts: int = 1) -> Tensor:
    """Bring the rows of each layer, ordered (head, part, position in head), into the order of the kernels.

    weights: [L, rows, ..]. The order of the result is (part, position in head, head).
    """
    rows = weights.unflatten(1, (num_heads, parts, -1))
    return rows.permute(0, 2, 3, 1, *range(4, rows.dim())).flatten(1, 3)


def by_head(x_RD: Tensor, num_heads: int) -> Tensor:
    """Bring columns ordered (position in head, head) into the order (head, position in head), [R, D]."""
    return x_RD.unflatten(1, (-1, num_heads)).transpose(1, 2).flatten(1)


def stacked(weights: Iterable[Tensor]) -> Tensor:
    """Return the weights of all layers as one tensor, [L, ..]."""
    return torch.stack(list(weights))
