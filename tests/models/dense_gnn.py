"""Message passing from its equations on padded adjacency matrices, [B, M, M, D]: the slow obvious twin of custom_gnn.

Matrices of edges are [B, sender, receiver]. Graphs must have no loops and no edge twice; dropout is left out.
"""

import torch
import torch.nn.functional as F
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


def dense_graphgym(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what GraphGym's model should return."""
    dense = Dense(batch)
    x, edge = dense.of_nodes(model.node_encoder(batch)), dense.adjacent.to(torch.float64)
    unit = lambda x: F.normalize(x, dim=-1) if model.l2norm else x  # noqa: E731
    for layer in model.layers:
        conv = layer.convolution
        if hasattr(conv, "linear"):
            matrix = edge + torch.eye(edge.shape[1], dtype=edge.dtype)
            root = matrix.sum(1).float().rsqrt()
            out = (matrix * (root.unsqueeze(2) * root.unsqueeze(1))).mT @ conv.linear(x)
        else:
            message = conv.message(x).unsqueeze(2)  # [B, sender, 1, D]
            largest = message.masked_fill(~dense.adjacent.unsqueeze(-1), -torch.inf).amax(1)
            found = {"add": edge.mT @ conv.message(x), "max": largest.masked_fill(largest.isinf(), 0)}
            found["mean"] = found["add"] / edge.sum(1).clamp(min=1).unsqueeze(-1)
            out = conv.own(x) + found[conv.agg]
        out = unit(layer.activation(masked_batch_norm(out, dense.mask, layer.norm)))
        x = x + out if layer.skip else out
    return dense_head(model.head, unit(x), dense.mask)
