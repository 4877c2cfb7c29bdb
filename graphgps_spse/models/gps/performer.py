"""Attention whose cost is linear in the number of nodes: FAVOR+ of Performer (Choromanski et al. 2021)."""

import math

import torch
from torch import Tensor, nn

from graphgps_spse.errors import ConfigError
from graphgps_spse.ops.graph_attention import NodeBlocks
from graphgps_spse.ops.segments import widened

HEAD_WIDTH = 64
"""Width of a head in GPS, whatever the width of the nodes, as in its code."""
EPS = 1e-4
"""Added to every feature, so that no query has a sum of zero."""


class PerformerAttention(nn.Module):
    """The softmax of attention by random features: y_i = sum_j f(q_i) f(k_j) v_j / sum_j f(q_i) f(k_j).

    f(x) = exp(W x - |x|^2 / 2 - its largest exponent) + EPS for x scaled by 1 / sqrt(sqrt(C)). W has orthogonal rows of
    random length. It is drawn once, and kept in checkpoints. In contrast to the official code, keys that only pad a
    batch do not count, so a graph is predicted alike in any batch.
    """

    projection: Tensor

    def __init__(
        self, dim: int, num_heads: int, *, dropout: float, head_width: int = HEAD_WIDTH, bias: bool = False
    ) -> None:
        """`bias` is that of queries, keys and values. Raises ConfigError for heads too narrow for a feature."""
        super().__init__()
        num_features = int(head_width * math.log(head_width))
        if num_features < 1:
            raise ConfigError(f"gt.n_heads={num_heads}: a head of Performer needs 2 columns, dim_hidden is {dim}")
        self.num_heads, self.dropout, inner = num_heads, nn.Dropout(dropout), num_heads * head_width
        self.qkv, self.out = nn.Linear(dim, 3 * inner, bias=bias), nn.Linear(inner, dim)
        self.register_buffer("projection", orthogonal_rows(num_features, head_width))

    def forward(self, x_ND: Tensor, blocks: NodeBlocks, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Raises ConfigError where attention weights are asked for: they are never computed."""
        if weights is not None:
            raise ConfigError("gt.layer_type: Performer computes no attention weights; use Transformer instead")
        attended = [self._attend(*block) for block in blocks.heads(self.qkv(x_ND), self.num_heads)]
        return self.dropout(self.out(blocks.merge_heads(attended)))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        """Return y of one block, [graphs, H, size, C]."""
        mask = None if key_mask is None else key_mask.transpose(2, 3)
        query, key = self._features(q, None, over=(3,)), self._features(k, mask, over=(2, 3))
        weighted, total = key.transpose(2, 3) @ v, key.sum(2).unsqueeze(3)
        return (query @ weighted) / (query @ total)

    def _features(self, x: Tensor, mask: Tensor | None, *, over: tuple[int, ...]) -> Tensor:
        """Return f(x), [graphs, H, size, M], zero where the mask is; exponents are shifted by their maximum `over`."""
        x = x * x.shape[3] ** -0.25
        exponent = widened(x @ self.projection.to(x.dtype).t())
        shown = exponent if mask is None else exponent.masked_fill(~mask, -torch.inf)
        shift = shown.amax(over, keepdim=True).detach()
        features = (exponent - 0.5 * x.square().sum(3, keepdim=True) - shift).exp() + EPS
        return features if mask is None else features.masked_fill(~mask, 0)


def orthogonal_rows(num_rows: int, width: int) -> Tensor:
    """Return [num_rows, width]: blocks of orthogonal rows, each as long as a random normal vector."""
    blocks = [torch.linalg.qr(torch.randn(width, width))[0].t() for _ in range(-(-num_rows // width))]
    return torch.cat(blocks)[:num_rows] * torch.randn(num_rows, width).norm(dim=1, keepdim=True)
