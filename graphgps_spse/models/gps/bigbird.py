"""BigBird (Zaheer et al. 2020): attention among blocks of nodes, whose cost is linear in the number of nodes.

ops/sparse_pairs.py says which nodes attend to each other. As in GraphGPS, the output depends on the order of nodes. In
contrast to GraphGPS, blocks are those of each graph and not of the padded batch.
"""

from typing import Any

from torch import Tensor, nn

from graphgps_spse.errors import ConfigError
from graphgps_spse.models.options import TransformerOptions
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.ops.sparse_pairs import SparsePairs, SparsePlan
from graphgps_spse.options import Options, option


class BigBirdOptions(Options, section="gt"):
    """Which blocks attend to each other."""

    block_size: int = option(3, "BigBird: nodes of a block", key="bigbird.block_size", at_least=1, at_most=1 << 16)
    num_random_blocks: int = option(
        3, "BigBird: random blocks that a block attends to", key="bigbird.num_random_blocks", at_least=0, at_most=1_000
    )


class BigBirdEncoder(nn.Module):
    """A whole layer, as GraphGPS has it in GPS: h = LN(x + Drop(O attention(x))), then LN(h + Drop(FFN(h))).

    Queries, keys and values have no biases, weights of attention no dropout; the FFN has ReLU and one width.
    """

    def __init__(self, dim: int, num_heads: int, *, options: BigBirdOptions, dropout: float, seed: int = 0) -> None:
        """Layers of one `seed` draw the same random blocks."""
        super().__init__()
        self.plan = SparsePlan(options.block_size, options.num_random_blocks, num_heads, seed)
        self.dropout = nn.Dropout(dropout)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.norm_attention, self.norm_ffn = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.ffn = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    @classmethod
    def from_cfg(cls, cfg: Any, dim: int, num_heads: int, *, dropout: float, seed: int = 0) -> "BigBirdEncoder":
        """Read `gt.bigbird` and `gt.dropout`. Raises ConfigError for `dropout` of attention weights."""
        if dropout:
            raise ConfigError("gt.attn_dropout: BigBird has no dropout of attention weights; set it to 0")
        return cls(
            dim,
            num_heads,
            options=BigBirdOptions.from_cfg(cfg),
            dropout=TransformerOptions.from_cfg(cfg).dropout,
            seed=seed,
        )

    def forward(self, x_ND: Tensor, pairs: SparsePairs, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Raises ConfigError where attention weights are asked for: most pairs have none."""
        if weights is not None:
            raise ConfigError("gt.layer_type: BigBird does not return attention weights; use Transformer instead")
        attended_ND = self.attend(x_ND, pairs.layout(self.plan))
        x_ND = self.norm_attention(x_ND + self.dropout(self.out(attended_ND)))
        return self.norm_ffn(x_ND + self.dropout(self.ffn(x_ND)))

    def attend(self, x_ND: Tensor, edges: EdgeLayout) -> Tensor:
        """Return the weighted values of all heads, [N, D]: softmax over the keys of each query."""
        num_rows, width = x_ND.shape[0] * self.plan.num_heads, x_ND.shape[1] // self.plan.num_heads
        query, key, value = (part.reshape(num_rows, width) for part in self.qkv(x_ND).chunk(3, dim=1))
        score_E1 = (edges.at_receivers(query * width**-0.5) * edges.at_senders(key)).sum(1, keepdim=True)
        share_E1 = edges.exp_at_receivers(score_E1)
        summed = edges.sum_at_receivers(share_E1 * edges.at_senders(value)) / edges.sum_at_receivers(share_E1)
        return summed.to(x_ND.dtype).reshape(x_ND.shape)
