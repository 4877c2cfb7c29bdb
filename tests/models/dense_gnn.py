"""Message passing from its equations on padded adjacency matrices, [B, M, M, D]: the slow obvious twin of custom_gnn.

Matrices of edges are [B, sender, receiver]. Graphs must have no loops and no edge twice; dropout is left out.
"""

import torch
from dense_gps import Dense, dense_encoding, dense_local, raw_edges
from dense_grit import dense_head, masked_batch_norm
from torch import Tensor

from graphgps_spse.data.base import GraphBatch


def dense_gnn(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what the model should return."""
    dense = Dense(batch)
    x, e = dense.of_nodes(model.node_encoder(batch)), torch.zeros(())
    if model.edge_encoder is not None:
        e = dense.of_edges(model.edge_encoder.raw(raw_edges(batch)))
        if model.edge_encoder.pairs is not None:
            e = torch.cat([e, dense_encoding(model.edge_encoder.pairs, batch, dense)], dim=-1)
    virtual = x.new_zeros(dense.num_graphs, x.shape[-1])
    for index, layer in enumerate(model.layers):
        x, e = dense_local(layer.convolution, x, e, dense.adjacent, dense.mask)
        if layer.ffn is not None:
            x = masked_batch_norm(x, dense.mask, layer.norm_local)
            x = masked_batch_norm(x + layer.ffn(x), dense.mask, layer.norm_ffn)
        if index < len(model.virtual_nodes):
            total = (x * dense.mask.unsqueeze(-1)).sum(1)
            virtual = virtual + model.virtual_nodes[index].mlp(virtual + total)
            x = x + virtual.unsqueeze(1)
    return dense_head(model.head, x, dense.mask)
