"""SAN from its equations, one graph at a time, all of its pairs side by side: the slow obvious twin.

Dropout is left out. Norms see all nodes of the batch.
"""

import torch
from dense_gps import Dense, dense_encoding, raw_edges
from dense_grit import dense_head, masked_batch_norm
from torch import Tensor

from graphgps_spse.data.base import GraphBatch


def dense_spectral_attention(
    attention: torch.nn.Module, x: Tensor, e: Tensor, adjacent: Tensor, other: Tensor | None
) -> Tensor:
    """Attention in one graph: x [n, D], e and adjacent by sender and receiver, `other` [1, D] or None."""
    split = lambda t: t.unflatten(-1, (attention.num_heads, -1))  # noqa: E731

    def weights(to_query: torch.nn.Module, to_key: torch.nn.Module, of_pair: Tensor) -> Tensor:
        product = split(to_query(x).unsqueeze(0) * to_key(x).unsqueeze(1) * of_pair)  # [sender, receiver, H, C]
        return (product.sum(-1) / product.shape[-1] ** 0.5).clamp(-5, 5).exp()

    weight = weights(attention.query, attention.key, attention.edge(e)) * adjacent.unsqueeze(-1)
    if other is not None:
        to_query, to_key, to_edge = attention.others
        rest = ~adjacent & ~torch.eye(len(x), dtype=torch.bool)
        weight = weight + attention.gamma * weights(to_query, to_key, to_edge(other)) * rest.unsqueeze(-1)
    weight = weight / (1 + attention.gamma)
    summed = torch.einsum("jih,jhc->ihc", weight, split(attention.value(x)))
    return (summed / (weight.sum(0) + 1e-6).unsqueeze(-1)).flatten(1)


def dense_san(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what SAN should return."""
    dense = Dense(batch)
    x = dense.of_nodes(model.node_encoder(batch))
    e = dense.of_edges(model.edge_encoder.raw(raw_edges(batch)))
    if model.edge_encoder.pairs is not None:
        e = torch.cat([e, dense_encoding(model.edge_encoder.pairs, batch, dense)], dim=-1)
    other = None if model.other_pairs is None else model.other_pairs.weight
    for layer in model.layers:
        attended = torch.zeros_like(x)
        for graph, size in enumerate(batch.sizes):
            inside = slice(size)
            attended[graph, inside] = dense_spectral_attention(
                layer.attention,
                x[graph, inside],
                e[graph, inside, inside],
                dense.adjacent[graph, inside, inside],
                other,
            )
        x = masked_batch_norm(x + layer.out(attended), dense.mask, layer.norm_attention)
        x = masked_batch_norm(x + layer.ffn(x), dense.mask, layer.norm_ffn)
    return dense_head(model.head, x, dense.mask)
