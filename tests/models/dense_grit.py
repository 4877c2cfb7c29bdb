"""GRIT from its equations on graphs padded to one size, [B, M, M, D]: the slow obvious twin of the packed model.

Nothing is shared with the package but the parameters: no packing, no reordered columns, and BatchNorm by masks.
Dropout is left out, and running statistics are read but never written.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.models.grit.layer import GritLayer
from graphgps_spse.models.grit.model import GritTransformer
from graphgps_spse.models.modules.heads import NodeHead, SANNodesHead


def masked_batch_norm(x: Tensor, mask: Tensor, norm: nn.Module) -> Tensor:
    """BatchNorm of the last dimension over the entries of x that `mask` selects; the others become zero."""
    if norm.training:
        count = mask.sum().clamp(min=1)
        weight = mask.unsqueeze(-1).to(x.dtype)
        dims = tuple(range(x.dim() - 1))
        mean = (x * weight).sum(dims) / count
        var = ((x - mean).square() * weight).sum(dims) / count
    else:
        mean, var = norm.running_mean, norm.running_var
    return ((x - mean) / (var + norm.eps).sqrt() * norm.weight + norm.bias) * mask.unsqueeze(-1)


def dense_layer(layer: GritLayer, x: Tensor, e: Tensor, mask: Tensor, log_deg: Tensor) -> tuple[Tensor, Tensor]:
    """One layer on x [B, M, D] and e [B, M, M, D] (receiver, sender); `mask` [B, M] says which nodes are real."""
    att = layer.attention
    heads = att.num_heads
    pair_mask = mask.unsqueeze(2) & mask.unsqueeze(1)
    split = lambda t: t.unflatten(-1, (heads, -1))  # noqa: E731
    q, k, v = (split(linear(x)) for linear in (att.query, att.key, att.value))
    w, b = split(att.pair(e)).chunk(2, dim=-1)
    s = (q.unsqueeze(2) + k.unsqueeze(1)) * w
    hat = F.relu(F.relu(s).sqrt() - F.relu(-s).sqrt() + b)
    logit = torch.einsum("bijhc,ch->bijh", hat, att.logit[:, :, 0]).clamp(-att.clamp, att.clamp)
    logit = logit.masked_fill(~mask[:, None, :, None], -torch.inf)
    alpha = torch.softmax(logit, dim=2)
    o = torch.einsum("bijh,bjhc->bihc", alpha, v)
    o = o + torch.einsum("bihc,chd->bihd", torch.einsum("bijh,bijhc->bihc", alpha, hat), att.mix)
    o = o.flatten(2)
    o = o * layer.degree[0, :, 0] + o * log_deg.unsqueeze(-1) * layer.degree[0, :, 1]
    h = masked_batch_norm(x + layer.out_node(o), mask, layer.norm_node)
    h = masked_batch_norm(h + layer.ffn(h), mask, layer.norm_ffn)
    e = masked_batch_norm(e + layer.out_pair(hat.flatten(3)), pair_mask, layer.norm_pair)
    return h, e


def channels_of_pairs(encodings: tuple[Encoding, ...], batch: GraphBatch, *, with_identity: bool) -> Tensor:
    """All channels of some pair encodings, [P, C]: distances one-hot, identities as the model takes them."""
    columns = []
    for encoding in encodings:
        values = batch.pair[encoding.name]
        if encoding.name == "SPD":
            is_near = values[:, 0] >= 0
            one_hot = F.one_hot(values[:, 0].long().clamp(min=0), encoding.max_length + 1)
            columns.append(one_hot * is_near.unsqueeze(1).to(values.dtype))
        else:
            first = 1 if encoding.name in ("RRWP", "SPSE") and not with_identity else 0
            columns.append(values[:, first:])
    return torch.cat(columns, dim=1)


def dense_grit(model: GritTransformer, batch: GraphBatch) -> Tensor:
    """Return what model(batch) should return."""
    sizes = torch.tensor(batch.sizes)
    size = int(sizes.max())
    mask = torch.arange(size) < sizes.unsqueeze(1)
    pair_mask = mask.unsqueeze(2) & mask.unsqueeze(1)
    dtype = model.layers[0].degree.dtype
    graph_N, node_N = mask.nonzero(as_tuple=True)

    x_ND = model.node_encoder(batch)
    if model.node_encoding is not None:
        x_ND = x_ND + model.node_encoding(torch.cat([batch.node[name] for name in model.node_parts], dim=1))
    x = torch.zeros(len(sizes), size, x_ND.shape[1], dtype=dtype).index_put((graph_N, node_N), x_ND)
    log_deg = torch.zeros(len(sizes), size, dtype=dtype)
    log_deg[mask] = batch.log_deg_N.to(dtype)
    e_PD = model.pair_encoding(channels_of_pairs(model.pair_channels.encodings, batch, with_identity=True))
    e = torch.zeros(len(sizes), size, size, x_ND.shape[1], dtype=dtype)
    e = e.index_put(pair_mask.nonzero(as_tuple=True), e_PD)
    sender, receiver = batch.edge_index_2E
    edge_EF = torch.empty(len(sender), 0) if batch.edge_attr_EF is None else batch.edge_attr_EF
    edge_ED = model.edge_encoder(edge_EF)
    e = e.index_put((graph_N[receiver], node_N[receiver], node_N[sender]), edge_ED, accumulate=True)
    for layer in model.layers:
        x, e = dense_layer(layer, x, e, mask, log_deg)
    return dense_head(model.head, x, mask)


def dense_head(head: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    """Predict from nodes [B, M, D]: one row for each graph, or for each node in the order of the batch."""
    if isinstance(head, NodeHead):
        return head.mlp(x[mask])
    pools_last = isinstance(head, SANNodesHead)
    total = ((head.mlp(x) if pools_last else x) * mask.unsqueeze(-1)).sum(1)
    pooled = total / mask.sum(1, keepdim=True) if head.pool.kind == "mean" else total
    return pooled if pools_last else head.mlp(pooled)
