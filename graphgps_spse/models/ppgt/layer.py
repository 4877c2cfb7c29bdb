"""A layer of PPGT: attention by distance with a bias and a gate from pairs, then a feed-forward network."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from graphgps_spse.models.modules.activations import build_activation
from graphgps_spse.models.ppgt.norm import AdaptiveRMSNorm
from graphgps_spse.ops.biased_attention import BiasedAttentionInput, attention_weights, biased_attention
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.graph_attention import NodeBlocks
from graphgps_spse.ops.pair_layout import PairLayout


class PlainAttention(nn.Module):
    """Weights (1 + g_ij) softmax_j(-|q_i - k_j|^2 / (2 sqrt(C)) + b_ij), with b and g linear in the pair features.

    C is the width of a head. |q_i|^2 is the same for all j, so it is left out.
    """

    reads_pairs: ClassVar[bool] = True
    """Whether a layer reads rows of pairs besides what its kernels read."""

    def __init__(self, dim: int, num_heads: int, *, dim_pair: int, dropout: float, kernels: str = "auto") -> None:
        super().__init__()
        self.num_heads, self.dropout, self.kernels = num_heads, dropout, kernels
        self.qkv, self.pair, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim_pair, 2 * num_heads), nn.Linear(dim, dim)
        initialise(self)

    def forward(
        self,
        x_ND: Tensor,
        e_PC: Tensor,
        blocks: NodeBlocks,
        layout: PairLayout,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Return [N, D]. Attention weights [P, H] are appended to `weights`."""
        qkv_NW = self.qkv(x_ND)
        bias_PH, gate_PH = self.pair(e_PC).chunk(2, dim=1)
        key_NHC = qkv_NW.chunk(3, dim=1)[1].unflatten(1, (self.num_heads, -1))
        length_NH = key_NHC.square().sum(2) * (0.5 * key_NHC.shape[2] ** -0.5)
        given = BiasedAttentionInput(
            blocks=blocks,
            num_heads=self.num_heads,
            qkv_NW=qkv_NW,
            bias_PH=bias_PH - layout.at_keys(length_NH),
            gate_PH=1 + gate_PH,
            dropout_rate=self.dropout if self.training else 0.0,
        )
        if weights is not None:
            weights.append(attention_weights(given))
        return self.out(choose(biased_attention, self.kernels, qkv_NW)(given))

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(biased_attention, self.kernels, self.qkv.weight, self.num_heads)


class PlainLayer(nn.Module):
    """x <- x + DropPath(attention(norm(x))), then x <- x + DropPath(FFN(norm(x)))."""

    def __init__(
        self,
        dim: int,
        *,
        attention: PlainAttention,
        ffn_ratio: int,
        activation: str,
        dropout: float,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.attention, self.drop_path = attention, drop_path
        self.norm_attention, self.norm_ffn = AdaptiveRMSNorm(dim), AdaptiveRMSNorm(dim)
        self.ffn = nn.Sequential(
            nn.Linear(dim, ffn_ratio * dim),
            build_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(ffn_ratio * dim, dim),
        )
        initialise(self.ffn)

    def forward(
        self,
        x_ND: Tensor,
        e_PC: Tensor,
        blocks: NodeBlocks,
        layout: PairLayout,
        weights: list[Tensor] | None = None,
    ) -> Tensor:
        """Return [N, D]. Attention weights [P, H] are appended to `weights`."""
        x_ND = x_ND + self._dropped(self.attention(self.norm_attention(x_ND), e_PC, blocks, layout, weights), layout)
        return x_ND + self._dropped(self.ffn(self.norm_ffn(x_ND)), layout)

    def _dropped(self, update_ND: Tensor, layout: PairLayout) -> Tensor:
        """Leave out the update of whole graphs, at the rate `drop_path` (stochastic depth)."""
        if not self.training or not self.drop_path:
            return update_ND
        return update_ND * layout.at_nodes(draw_dropout_mask(layout.num_graphs, 1, self.drop_path, update_ND))


def initialise(module: nn.Module) -> None:
    """Draw the weights of linear maps as vision transformers do: N(0, 0.02), cut at 2; biases are zero."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            torch.nn.init.zeros_(part.bias)
