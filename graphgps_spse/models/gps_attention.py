"""Multi-head attention within each graph of a batch, without pair features, on blocks of graphs of similar size.

The graphs of a batch stand in order of size, so neighbours can share a padded block at little waste, and a few calls of
PyTorch's attention do the work.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.models.fused import draw_keep
from graphgps_spse.models.pairs import to_device

MAX_WASTE = 1.25  # padded pairs of a block, in units of its real ones
FREE_PAIRS = 4096  # and those that every block may waste besides: less than another call costs


class NodeBlocks:
    """Nodes of a batch in blocks [graphs, largest size], one after the other; `slot_N` is where each node lies."""

    @torch.compiler.disable  # host arithmetic, anew for every batch
    def __init__(self, sizes: tuple[int, ...], device: torch.device | str = "cpu") -> None:
        cuts = _cut(sizes)
        self.shapes = [(stop - start, max(sizes[start:stop])) for start, stop in cuts]
        self.num_slots = sum(graphs * size for graphs, size in self.shapes)
        filled = [np.arange(size) < np.array(sizes[a:b])[:, None] for (a, b), (_, size) in zip(cuts, self.shapes)]
        self.slot_N = to_device(np.concatenate([block.ravel() for block in filled]).nonzero()[0], device)
        self.masks = [None if block.all() else to_device(block[:, None, None, :], device) for block in filled]
        """For each block, which keys are nodes, [graphs, 1, 1, size]; None if all are."""

    def pad(self, x_ND: Tensor) -> list[Tensor]:
        """Return the blocks, [graphs, size, D] each, zero beyond the nodes of a graph."""
        x_SD = x_ND.new_zeros(self.num_slots, x_ND.shape[1]).index_copy(0, self.slot_N, x_ND)
        blocks = x_SD.split([graphs * size for graphs, size in self.shapes])
        return [block.unflatten(0, shape) for block, shape in zip(blocks, self.shapes)]

    def unpad(self, blocks: list[Tensor]) -> Tensor:
        """Return the rows of the nodes, [N, D]."""
        return torch.cat([block.flatten(0, 1) for block in blocks]).index_select(0, self.slot_N)


def _cut(sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Cut the graphs into runs whose padded pairs stay within MAX_WASTE and FREE_PAIRS of their real ones."""
    cuts, start = [], 0
    largest, pairs = 0, 0
    for index, size in enumerate(sizes):
        largest, pairs = max(largest, size), pairs + size * size
        if (index - start + 1) * largest**2 > MAX_WASTE * pairs + FREE_PAIRS:
            cuts.append((start, index))
            start, largest, pairs = index, size, size * size
    return [*cuts, (start, len(sizes))]


class GraphAttention(nn.Module):
    """softmax(q_i k_j / sqrt(D/H)) over the nodes j of i's graph, times v_j, by head, then a linear map.

    Initial weights are those of torch.nn.MultiheadAttention: the stacked maps Xavier-uniform, biases zero.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_ND: Tensor, blocks: NodeBlocks) -> Tensor:
        """Return [N, D]."""
        dropout, attended = self.dropout if self.training else 0.0, []
        for qkv, mask in zip(blocks.pad(self.qkv(x_ND)), blocks.masks):
            q, k, v = qkv.unflatten(2, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
            attend = _attend_with_dropout if dropout and qkv.device.type == "cpu" else F.scaled_dot_product_attention
            attended.append(attend(q, k, v, attn_mask=mask, dropout_p=dropout).transpose(1, 2).flatten(2))
        return self.out(blocks.unpad(attended))


def _attend_with_dropout(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None, dropout_p: float) -> Tensor:
    """PyTorch's attention as plain products: with dropout its own on the CPU takes twice the time, mostly for masks."""
    score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    score = score if attn_mask is None else score.masked_fill_(~attn_mask, -torch.inf)
    weight = score.softmax(-1)
    keep = draw_keep(weight.numel(), 1, dropout_p, weight).view_as(weight)
    return (weight * keep) @ v
