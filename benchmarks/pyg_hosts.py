"""Message passing and Graphormer by PyG's layers, with the weights of this package, for bench_training.py."""

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINEConv
from torch_geometric.utils import to_dense_adj, to_dense_batch

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.models.gnn.model import MessagePassingModel
from graphgps_spse.models.graphormer.model import Graphormer
from graphgps_spse.models.modules.message_passing import GAT, GCN
from graphgps_spse.ops.pair_layout import PairLayout

NAMES = {
    "conv.nn.": "mlp.",
    "conv.lin.": "linear.",
    "conv.lin_edge.": "edge.",
    "conv.bias": "bias",
    "conv.att_src": "at_sender",
    "conv.att_dst": "at_receiver",
    "conv.att_edge": "at_edge",
}
"""Names of the tensors of PyG's convolutions, and of ours."""


class PyGConvolution(nn.Module):
    """PyG's convolution with the weights of one of ours, and what follows it."""

    def __init__(self, ours: nn.Module) -> None:
        super().__init__()
        self.update = ours.update
        if isinstance(ours, GCN):
            dim = ours.linear.in_features
            self.conv: nn.Module = GCNConv(dim, dim)
        elif isinstance(ours, GAT):
            dim = ours.linear.in_features
            self.conv = GATConv(dim, dim // ours.num_heads, ours.num_heads, edge_dim=dim)
        else:
            self.conv = GINEConv(copy.deepcopy(ours.mlp))
        state = dict(ours.named_parameters())
        for name, parameter in self.named_parameters():
            if name.startswith("conv."):
                parameter.data = state[our_part(name)].data.clone().reshape(parameter.shape)

    def forward(self, x_ND: Tensor, e_ED: Tensor | None, edge_index_2E: Tensor) -> Tensor:
        """Return the next node features."""
        inputs = (x_ND, edge_index_2E) if isinstance(self.conv, GCNConv) else (x_ND, edge_index_2E, e_ED)
        return self.update(x_ND, self.conv(*inputs))


class PyGMessagePassing(nn.Module):
    """The model of this package with PyG's convolutions."""

    def __init__(self, ours: MessagePassingModel) -> None:
        super().__init__()
        ours = copy.deepcopy(ours)
        self.node_encoder, self.edge_encoder, self.layers, self.head = (
            ours.node_encoder,
            ours.edge_encoder,
            ours.layers,
            ours.head,
        )
        for layer in self.layers:
            layer.convolution = PyGConvolution(layer.convolution)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the predictions, [B, T]."""
        layout, x_ND, e_ED = PairLayout(batch.sizes), self.node_encoder(batch), None
        if self.edge_encoder is not None:
            e_ED = self.edge_encoder(batch, layout)
        for layer in self.layers:
            x_ND = layer.convolution(x_ND, e_ED, batch.edge_index_2E)
            if layer.ffn is not None:
                x_ND = layer.norm_local(x_ND)
                x_ND = layer.norm_ffn(x_ND + layer.ffn(x_ND))
        return self.head(x_ND, layout)


class PyGGraphormer(nn.Module):
    """Graphormer as GraphGPS has it: graphs padded by PyG, and PyTorch's attention with the bias as its mask."""

    def __init__(self, ours: Graphormer) -> None:
        super().__init__()
        self.ours = copy.deepcopy(ours)
        self.attentions = nn.ModuleList()
        for layer in self.ours.layers:
            attention = layer.attention
            dim, rate = attention.out.in_features, attention.dropout
            theirs = nn.MultiheadAttention(dim, attention.num_heads, rate, batch_first=True)
            theirs.in_proj_weight, theirs.in_proj_bias = attention.qkv.weight, attention.qkv.bias
            theirs.out_proj.weight, theirs.out_proj.bias = attention.out.weight, attention.out.bias
            self.attentions.append(theirs)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the predictions, [B, T]."""
        ours, layout, sizes_B = self.ours, PairLayout(batch.sizes), torch.tensor(batch.sizes)
        graph_N = torch.arange(len(sizes_B)).repeat_interleave(sizes_B)
        dense, mask = to_dense_batch(ours.node_encoder(batch), graph_N)
        pairs_2P = layout.edges_of(torch.arange(layout.num_pairs))
        bias = to_dense_adj(pairs_2P, graph_N, ours.pair_bias(batch, layout))
        if ours.tokens is not None:
            token = ours.tokens.token.expand(len(sizes_B), 1, -1)
            dense, mask = torch.cat([token, dense], dim=1), F.pad(mask, (1, 0), value=True)
            bias = F.pad(bias, (0, 0, 1, 0, 1, 0))
            bias[:, 1:, 0] = bias[:, 0, :] = ours.tokens.bias
        bias = bias.permute(0, 3, 1, 2).flatten(0, 1)
        x, blocked = ours.input_dropout(dense), torch.zeros_like(mask, dtype=bias.dtype).masked_fill(~mask, -torch.inf)
        for layer, attention in zip(ours.layers, self.attentions):
            normal = layer.norm_attention(x)
            attended, _ = attention(normal, normal, normal, blocked, attn_mask=bias, need_weights=False)
            x = x + layer.dropout(attended)
            x = x + layer.ffn(x)
        if ours.reads_tokens:
            return ours.head(x[:, 0], PairLayout((1,) * layout.num_graphs))
        return ours.head(x[:, x.shape[1] - int(sizes_B.max()) :][mask[:, -int(sizes_B.max()) :]], layout)


def our_part(name: str) -> str:
    """Return the name in this package of a tensor of PyGConvolution."""
    for theirs, ours in NAMES.items():
        if name.startswith(theirs):
            return ours + name[len(theirs) :]
    return name


def our_name(name: str) -> str:
    """Return the name in this package of a parameter of one of the models."""
    prefix, found, rest = name.partition(".convolution.")
    return prefix + found + our_part(rest) if found else name.removeprefix("ours.")
