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
    nodes = torch.cat([by_position(weights, heads) for weights in (queries, keys, values)], dim=1)
    outs = by_position(stacked(a.out.weight.t() for a in attentions), heads).transpose(1, 2)
    if shared:
        maps = [_shared_maps(linear, features, heads) * len(attentions) for linear in shared]
    else:
        maps = [
            features.maps(by_position(stacked(getattr(a, name).weight for a in attentions), heads))
            for name in ("pair_score", "pair_value")
        ]
    return [CSAWeights(*each) for each in zip(nodes.unbind(), *maps, outs.unbind())]


def _shared_maps(linear: nn.Linear, features: PairFeatures, num_heads: int) -> list[PairMap]:
    """Return the map of the pair features that all layers share, as a list of one."""
    weight, bias = (by_position(x.unsqueeze(0), num_heads) for x in (linear.weight, linear.bias))
    return features.maps(weight, bias[0])
