"""Encodings of node pairs as columns that a layer reads: a linear map of their channels, or a vector for each category.

`TypeDictEdge+SPSE` is [TypeDictEdge(edge) | W f(S)_uv + b], half of the columns each: the features of an edge are
narrowed to make room, and keep the odd column. With several encodings, `TypeDictEdge+RWSE+SPSE`, W reads their channels
side by side.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.encodings.base import Encoding
from graphgps_spse.models.modules.encoder_names import enabled_encoding


class PairChannels:
    """The channels of some pair encodings that a linear map reads, side by side: [P, C] for a batch.

    Categories (Encoding.pair_categories) become a channel each, 1 for the pairs that have it.
    """

    def __init__(self, encodings: Sequence[Encoding], *, identity: bool) -> None:
        """Without `identity`, the identity channels of encodings are omitted."""
        self.encodings = tuple(encodings)
        self._parts = [(e.name, e.pair_categories, e.has_identity and not identity) for e in encodings]
        self.number = sum(e.pair_categories or e.dim_pair - (e.has_identity and not identity) for e in encodings)

    def __call__(self, pair: Mapping[str, Tensor], rows_R: Tensor | None = None) -> Tensor:
        """Return the channels of all pairs, or of the rows given; `pair` holds [P, C] by name of encoding."""
        parts = []
        for name, num_categories, without_identity in self._parts:
            values = pair[name] if rows_R is None else pair[name][rows_R]
            if num_categories:
                values = (values == torch.arange(num_categories, device=values.device)).to(values.dtype)
            parts.append(values[:, 1:] if without_identity else values)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class PairLinear(nn.Module):
    """A linear map with bias of the channels of some pair encodings, without their identity channels."""

    def __init__(self, encodings: Sequence[Encoding], dim: int) -> None:
        super().__init__()
        # One encoding's identity stays and meets a column of zeros: that is cheaper than a copy of the other channels.
        self.has_identity = len(encodings) == 1 and encodings[0].has_identity
        self.channels = PairChannels(encodings, identity=self.has_identity)
        self.linear = nn.Linear(self.channels.number - self.has_identity, dim)

    def weight(self) -> Tensor:
        """Return the weight of the channels, [dim, C]."""
        return F.pad(self.linear.weight, (1, 0)) if self.has_identity else self.linear.weight

    def constant(self) -> Tensor:
        """Return the bias, [dim]."""
        return self.linear.bias

    def forward(self, channels_RC: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(channels_RC, self.weight(), self.linear.bias)


class PairEmbedding(nn.Module):
    """One learned vector for each category of a pair encoding; zero for pairs that have none."""

    def __init__(self, encoding: Encoding, dim: int) -> None:
        super().__init__()
        self.channels = PairChannels([encoding], identity=False)
        self.embedding = nn.Embedding(encoding.pair_categories, dim)

    def weight(self) -> Tensor:
        """Return the weight of the channels, [dim, C]."""
        return self.embedding.weight.t()

    def constant(self) -> Tensor:
        """Return a bias of zero, [dim]."""
        return self.embedding.weight.new_zeros(self.embedding.embedding_dim)

    def forward(self, channels_RC: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(channels_RC, self.weight())


def build_pair_encoder(
    encodings: Sequence[Encoding], names: Sequence[str], dim: int
) -> PairLinear | PairEmbedding | None:
    """Return the map of the named encodings to the last `dim` // 2 columns of an edge; None without any."""
    if not names:
        return None
    chosen = [enabled_encoding(encodings, name, "pair") for name in names]
    if len(chosen) == 1 and chosen[0].pair_categories:
        return PairEmbedding(chosen[0], dim // 2)
    return PairLinear(chosen, dim // 2)
