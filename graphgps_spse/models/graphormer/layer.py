"""A layer of Graphormer: LayerNorm before attention with a bias for each pair, and before a feed-forward network."""

from torch import Tensor, nn

from graphgps_spse.models.modules.biased_attention import BiasedAttention, BiasedPairs


class GraphormerLayer(nn.Module):
    """x <- x + Drop(attention(LN(x))), then x <- x + Drop(FFN(LN(x))), whose hidden width is that of the nodes."""

    def __init__(self, dim: int, *, attention: BiasedAttention, dropout: float, mlp_dropout: float) -> None:
        super().__init__()
        self.attention, self.norm_attention, self.dropout = attention, nn.LayerNorm(dim), nn.Dropout(dropout)
        self.ffn = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, dim),
            nn.GELU(),
            nn.Dropout(mlp_dropout),
            nn.Linear(dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x_ND: Tensor, pairs: BiasedPairs, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Attention weights [P, H] are appended to `weights`."""
        x_ND = x_ND + self.dropout(self.attention(self.norm_attention(x_ND), pairs, weights))
        return x_ND + self.ffn(x_ND)
