"""Chromatic self-attention (Menegaux et al. 2023): the weights of one layer. ops/chromatic_attention computes it."""

from typing import NamedTuple

from torch import Tensor, nn

from graphgps_spse.models.csa.pair_features import PairFeatures
from graphgps_spse.models.modules.head_order import by_head
from graphgps_spse.ops.chromatic_attention import ChromaticInput, PairMap, attention_weights, chromatic_attention
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.ops.row_linear import row_linear


class CSAWeights(NamedTuple):
    """One layer's weights, columns of width D ordered (position in head, head)."""

    nodes_WD: Tensor
    """[3D, D] of x to [q | k | v], q scaled by 1 / sqrt(D / H)."""
    score: PairMap
    """A."""
    value: PairMap
    """B."""
    out_DD: Tensor


class CSAPairs(NamedTuple):
    """What the attention of a layer reads besides the nodes."""

    layout: PairLayout
    features: PairFeatures
    """The same for every layer."""
    weights: CSAWeights


class ChromaticAttention(nn.Module):
    """Attention whose scores and values are shifted, channel by channel, by maps of the pair features.

    layer_weights.py brings columns into the kernels' order, (position in head, head).
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float, has_maps: bool, kernels: str = "auto") -> None:
        """Without `has_maps`, the layer uses the maps that all layers share."""
        super().__init__()
        self.num_heads, self.dropout, self.kernels = num_heads, dropout, kernels
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.pair_score = nn.Linear(dim, dim, bias=False) if has_maps else None
        self.pair_value = nn.Linear(dim, dim, bias=False) if has_maps else None
        self.out = nn.Linear(dim, dim)

    def forward(self, x_ND: Tensor, pairs: CSAPairs, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Attention weights [P, D], one for each channel, are appended to `weights`."""
        features = pairs.features
        q_ND, k_ND, v_ND = row_linear(x_ND, pairs.weights.nodes_WD).chunk(3, dim=1)
        given = ChromaticInput(
            layout=pairs.layout,
            num_heads=self.num_heads,
            q_ND=q_ND,
            k_ND=k_ND,
            v_ND=v_ND,
            z_PC=features.z_PC,
            rows_E=features.rows_E,
            raw_ER=features.raw_ER,
            score=pairs.weights.score,
            value=pairs.weights.value,
            dropout_rate=self.dropout if self.training else 0.0,
        )
        if weights is not None:
            weights.append(by_head(attention_weights(given), self.num_heads))
        y_ND = choose(chromatic_attention, self.kernels, q_ND)(given)
        return row_linear(y_ND, pairs.weights.out_DD, self.out.bias)

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(chromatic_attention, self.kernels, self.query.weight, self.num_heads)
