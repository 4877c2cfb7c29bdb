"""Chromatic self-attention (Menegaux et al. 2023): the weights of one layer. ops/chromatic_attention computes it."""

from typing import NamedTuple

from torch import Tensor, nn

from graphgps_spse.models.csa.pair_features import PairFeatures
from graphgps_spse.ops.chromatic_attention import ChromaticInput, PairMap, attention_weights, chromatic_attention
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.pair_layout import PairLayout


class CSAPairs(NamedTuple):
    """Pair features, the same for the attention of every layer."""

    layout: PairLayout
    features: PairFeatures
    shared: tuple[PairMap, PairMap] | None
    """The maps A (scores) and B (values), if all layers share them."""


class ChromaticAttention(nn.Module):
    """Attention whose scores and values are shifted, channel by channel, by maps of the pair features."""

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
        layout, features = pairs.layout, pairs.features
        score, value = pairs.shared or (features.mapped(m) for m in (self.pair_score, self.pair_value) if m is not None)
        given = ChromaticInput(
            layout=layout,
            num_heads=self.num_heads,
            q_ND=self.query(x_ND) * (x_ND.shape[1] // self.num_heads) ** -0.5,
            k_ND=self.key(x_ND),
            v_ND=self.value(x_ND),
            z_PC=features.z_PC,
            rows_E=features.rows_E,
            score=score,
            value=value,
            dropout_rate=self.dropout if self.training else 0.0,
        )
        if weights is not None:
            weights.append(attention_weights(given))
        return self.out(choose(chromatic_attention, self.kernels, given.q_ND)(given))

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(chromatic_attention, self.kernels, self.query.weight, self.num_heads)
