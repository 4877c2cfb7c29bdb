"""PPGT from its equations on graphs padded to one size: the slow obvious twin. Dropout is left out."""

import math

import torch
from dense_gps import Dense, raw_edges
from dense_grit import channels_of_pairs, dense_head
from torch import Tensor

from graphgps_spse.data.base import GraphBatch


def norm(x: Tensor, module: torch.nn.Module) -> Tensor:
    rms = lambda t: (t.square().mean(-1, keepdim=True) + 1e-6).sqrt()  # noqa: E731
    return x / rms(x) * rms(module.scale * x + module.shift)


def dense_stem(stem: torch.nn.Module, batch: GraphBatch, dense: Dense, degree: Tensor) -> Tensor:
    """Return the features of pairs, [B, query, key, C]."""
    inverse = torch.where(degree > 0, 1 / degree, 0)
    sizes = torch.tensor(batch.sizes, dtype=inverse.dtype)
    grid = lambda t: t.expand(-1, dense.size, dense.size).unsqueeze(-1)  # noqa: E731
    parts = [grid((1 / sizes)[:, None, None]), grid(inverse.unsqueeze(2)), grid(inverse.unsqueeze(1))]
    if stem.channels.encodings:
        parts.insert(0, dense.of_pairs(channels_of_pairs(stem.channels.encodings, batch, with_identity=True)))
    z = torch.cat(parts, dim=-1)
    waves = [wave(math.pi * 2**power * z) for power in range(len(stem.frequencies)) for wave in (torch.sin, torch.cos)]
    e = stem.mlp(torch.cat([z, *waves], dim=-1)) + dense.of_edges(stem.edge_encoder(raw_edges(batch))).transpose(1, 2)
    for before, block in zip(stem.norms, stem.blocks):
        e = e + block(norm(e, before))
    return norm(e, stem.norm_out)


def dense_plain_attention(attention: torch.nn.Module, x: Tensor, e: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (t.unflatten(-1, (attention.num_heads, -1)) for t in attention.qkv(x).chunk(3, dim=-1))
    bias, gate = attention.pair(e).chunk(2, dim=-1)
    distance = (q.unsqueeze(2) - k.unsqueeze(1)).square().sum(-1)
    logit = bias - distance / (2 * q.shape[-1] ** 0.5)
    share = logit.masked_fill(~mask[:, None, :, None], -torch.inf).softmax(2) * (1 + gate)
    return attention.out(torch.einsum("bijh,bjhc->bihc", share, v).flatten(2))


def dense_ppgt(model: torch.nn.Module, batch: GraphBatch) -> Tensor:
    """Return what PPGT should return."""
    dense = Dense(batch)
    degree, sizes = dense.adjacent.sum(2).double(), torch.tensor(batch.sizes).double()
    parts = [batch.node[name] for name in model.node_parts]
    logs = [batch.log_deg_N.double().unsqueeze(1), (1 + sizes).log()[dense.graph_N].unsqueeze(1)]
    x = dense.of_nodes(model.node_encoder(batch) + model.node_encoding(torch.cat([*parts, *logs], dim=1)))
    e = dense_stem(model.stem, batch, dense, degree)
    for layer in model.layers:
        x = x + dense_plain_attention(layer.attention, norm(x, layer.norm_attention), e, dense.mask)
        x = x + layer.ffn(norm(x, layer.norm_ffn))
    return dense_head(model.head, norm(x, model.norm_out), dense.mask)
