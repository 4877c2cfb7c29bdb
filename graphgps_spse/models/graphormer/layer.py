"""A layer of Graphormer: LayerNorm before attention with a bias for each pair, and before a feed-forward network."""

from torch import Tensor, nn

from graphgps_spse.ops.biased_attention import BiasedAttentionInput, biased_attention
from graphgps_spse.ops.dispatch import choose, prepare
from graphgps_spse.ops.graph_attention import NodeBlocks


class BiasedAttention(nn.Module):
    """Multi-head attention with a bias for each pair and head; initial weights as in torch.nn.MultiheadAttention."""

    def __init__(self, dim: int, num_heads: int, *, dropout: float, kernels: str = "auto") -> None:
        super().__init__()
        self.num_heads, self.dropout, self.kernels = num_heads, dropout, kernels
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, x_ND: Tensor, bias_PH: Tensor, blocks: NodeBlocks) -> Tensor:
        """Return [N, D]."""
        qkv_NW = self.qkv(x_ND)
        rate = self.dropout if self.training else 0.0
        given = BiasedAttentionInput(blocks, self.num_heads, qkv_NW, bias_PH, None, rate)
        return self.out(choose(biased_attention, self.kernels, qkv_NW)(given))

    def prepare_kernels(self) -> None:
        """Raise ConfigError if `train.kernels` is fused and the device of the weights has no kernels."""
        prepare(biased_attention, self.kernels, self.qkv.weight, self.num_heads)


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

    def forward(self, x_ND: Tensor, bias_PH: Tensor, blocks: NodeBlocks) -> Tensor:
        """Return [N, D]."""
        x_ND = x_ND + self.dropout(self.attention(self.norm_attention(x_ND), bias_PH, blocks))
        return x_ND + self.ffn(x_ND)
