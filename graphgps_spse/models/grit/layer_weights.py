"""GRIT's weights in the order of columns that ops/grit_pairs has, brought there for all layers of a model at once."""

from collections.abc import Sequence

import torch
from torch import nn

from graphgps_spse.models.grit.attention import LayerWeights
from graphgps_spse.models.grit.layer import GritLayer
from graphgps_spse.models.modules.head_order import by_position, stacked
from graphgps_spse.ops.grit_pairs import PairWeights


def weights_of(layers: Sequence[GritLayer]) -> list[LayerWeights]:
    """Return the weights of each layer. All layers have the same width and number of heads."""
    attentions, heads = [layer.attention for layer in layers], layers[0].attention.num_heads
    dim = layers[0].out_node.in_features
    maps = torch.stack([m.weight for a in attentions for m in (a.query, a.key, a.value)])
    maps = by_position(maps, heads).unflatten(0, (len(layers), 3)).flatten(1, 2)
    bias = nn.functional.pad(by_position(stacked(a.query.bias for a in attentions), heads), (0, 2 * dim))
    map_LWD = by_position(stacked(a.pair.weight for a in attentions), heads, parts=2)
    map_bias_LW = by_position(stacked(a.pair.bias for a in attentions), heads, parts=2)
    mix = stacked(a.mix for a in attentions).unsqueeze(-1) * attentions[0].same_head
    degree_LD2 = by_position(stacked(layer.degree[0] for layer in layers), heads)
    out_node_LDD = by_position(stacked(layer.out_node.weight.t() for layer in layers), heads).transpose(1, 2)
    outs = [layer.out_pair.weight.t() for layer in layers if layer.update_pairs]
    out_DD = iter(by_position(stacked(outs), heads).transpose(1, 2) if outs else ())
    of_pairs = [
        PairWeights(
            map_WD=map_WD,
            map_bias_W=map_bias_W,
            logit_D=layer.attention.logit.flatten(),
            out_DD=next(out_DD) if layer.update_pairs else None,
            out_bias_D=layer.out_pair.bias if layer.update_pairs else None,
        )
        for layer, map_WD, map_bias_W in zip(layers, map_LWD.unbind(), map_bias_LW.unbind())
    ]
    mixes = mix.flatten(3).flatten(1, 2).unbind()
    return [
        LayerWeights(*each)
        for each in zip(maps.unbind(), bias.unbind(), of_pairs, mixes, degree_LD2.unbind(), out_node_LDD.unbind())
    ]
