"""Graphormer from its equations on graphs padded to one size, by PyTorch's attention: the slow obvious twin.

The token is the first node of each graph. Dropout is left out.
"""

import torch
from dense_gps import Dense, dense_bias, dense_biased_attention, with_tokens
from dense_grit import dense_head
from torch import Tensor

from graphgps_spse.data.base import GraphBatch


def dense_graphormer(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what Graphormer should return."""
    dense = Dense(batch)
    x, mask = dense.of_nodes(model.node_encoder(batch)), dense.mask
    bias = dense_bias(model.pair_bias, batch, dense)
    if model.tokens is not None:
        x, bias, mask = with_tokens(model.tokens, x, bias, mask)
    for layer in model.layers:
        x = x + dense_biased_attention(layer.attention, layer.norm_attention(x), bias, mask)
        x = x + layer.ffn(x)
    if model.reads_tokens:
        return model.head.mlp(x[:, 0])
    return dense_head(model.head, x[:, x.shape[1] - dense.size :], dense.mask)
