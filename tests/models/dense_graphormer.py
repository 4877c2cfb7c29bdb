"""Graphormer from its equations on graphs padded to one size, by PyTorch's attention: the slow obvious twin.

The token is the first node of each graph. Dropout is left out.
"""

import torch
import torch.nn.functional as F
from dense_gps import Dense, raw_edges
from dense_grit import channels_of_pairs, dense_head
from torch import Tensor

from graphgps_spse.data.base import GraphBatch


def dense_bias(pair_bias: torch.nn.Module, batch: GraphBatch, dense: Dense) -> Tensor:
    """Return the biases of nodes, [B, query, key, H]."""
    bias = dense.of_edges(pair_bias.edge_encoder(raw_edges(batch))).transpose(1, 2)
    if pair_bias.linear is not None:
        channels = channels_of_pairs(pair_bias.channels.encodings, batch, with_identity=True)
        bias = bias + dense.of_pairs(channels) @ pair_bias.linear.weight.t()
    for embedding in pair_bias.embeddings:
        (encoding,) = embedding.channels.encodings
        category = dense.of_pairs(batch.pair[encoding.name])[..., 0].long()
        table = torch.cat([embedding.embedding.weight, torch.zeros(1, bias.shape[-1])])  # the last row is for -1
        bias = bias + table[category]
    return bias


def dense_graphormer(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what Graphormer should return."""
    dense = Dense(batch)
    x, mask = dense.of_nodes(model.node_encoder(batch)), dense.mask
    bias = dense_bias(model.pair_bias, batch, dense)
    if model.tokens is not None:
        x = torch.cat([model.tokens.token.expand(len(x), 1, -1), x], dim=1)
        mask = F.pad(mask, (1, 0), value=True)
        bias = F.pad(bias, (0, 0, 1, 0, 1, 0))
        bias[:, 0, :] = bias[:, :, 0] = model.tokens.bias
    for layer in model.layers:
        heads, normal = layer.attention.num_heads, layer.norm_attention(x)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in layer.attention.qkv(normal).chunk(3, dim=-1))
        allowed = bias.permute(0, 3, 1, 2).masked_fill(~mask[:, None, None, :], -torch.inf)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + layer.attention.out(attended.transpose(1, 2).flatten(2))
        x = x + layer.ffn(x)
    if model.reads_tokens:
        return model.head.mlp(x[:, 0])
    return dense_head(model.head, x[:, x.shape[1] - dense.size :], dense.mask)
