"""CSA's weights in the order of columns that ops/chromatic_attention has, brought there for all layers at once."""

from collections.abc import Sequence

import torch
from torch import nn

from graphgps_spse.models.csa.attention import ChromaticAttention, CSAWeights
from graphgps_spse.models.csa.pair_features import PairFeatures
from graphgps_spse.models.modules.head_order import by_position, stacked
from graphgps_spse.ops.chromatic_attention import PairMap


def csa_weights_of(
    attentions: Sequence[ChromaticAttention], features: PairFeatures, shared: Sequence[nn.Linear] = ()
) -> list[CSAWeights]:
    """Return the weights of each layer. All layers have the same width and number of heads.

    shared: the maps of the pair features to scores and to values, where all layers have the same.
    """
    heads, dim = attentions[0].num_heads, attentions[0].out.in_features
    queries = stacked(a.query.weight for a in attentions) * (dim // heads) ** -0.5
    keys, values = (stacked(getattr(a, name).weight for a in attentions) for name in ("key", "value"))
    nodes = torch.cat([by_position(maps, heads) for maps in (queries, keys, values)], dim=1)
    outs = by_position(stacked(a.out.weight.t() for a in attentions), heads).transpose(1, 2)
    scores, of_values = (_pair_maps(attentions, features, number, shared) for number in range(2))
    return [CSAWeights(*each) for each in zip(nodes.unbind(), scores, of_values, outs.unbind())]


def _pair_maps(
    attentions: Sequence[ChromaticAttention], features: PairFeatures, number: int, shared: Sequence[nn.Linear]
) -> list[PairMap]:
    """Return the map of pair features of each layer, to scores (number 0) or to values (1)."""
    heads = attentions[0].num_heads
    if shared:
        weight, bias = (by_position(x.unsqueeze(0), heads) for x in (shared[number].weight, shared[number].bias))
        return features.maps(weight, bias[0]) * len(attentions)
    linears = [linear for a in attentions if (linear := (a.pair_score, a.pair_value)[number]) is not None]
    return features.maps(by_position(stacked(linear.weight for linear in linears), heads))
