"""GPS with PyG's layer torch_geometric.nn.GPSConv and the weights of this package, for bench_training.py."""

import copy

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, GPSConv

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.models.gps.model import GPSModel
from graphgps_spse.ops.pair_layout import PairLayout

PARTS = (
    ("local.mlp", "conv.nn"),
    ("norm_local", "norm1.module"),
    ("norm_attention", "norm2.module"),
    ("norm_ffn", "norm3.module"),
    ("attention.qkv.", "attn.in_proj_"),
    ("attention.out", "attn.out_proj"),
    ("ffn", "mlp"),
)


class PyGStack(nn.Module):
    """Model with PyG's layers, and the encoders and head of this package."""

    def __init__(self, ours: GPSModel) -> None:
        super().__init__()
        self.node_encoder, self.edge_encoder, self.head = (
            copy.deepcopy(part) for part in (ours.node_encoder, ours.edge_encoder, ours.head)
        )
        self.layers = nn.ModuleList()
        for layer in ours.layers:
            dim, attention = layer.norm_ffn.num_features, layer.attention
            theirs = GPSConv(
                dim,
                GINEConv(copy.deepcopy(layer.local.mlp)),
                heads=attention.num_heads,
                dropout=layer.dropout,
                attn_kwargs={"dropout": attention.dropout},
            )
            state = layer.state_dict()
            theirs.load_state_dict(
                {name: state[our_part(name)] for name in theirs.state_dict() if "eps" not in name}, strict=False
            )
            self.layers.append(theirs)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the predictions, [B, T]."""
        layout, sizes_B = PairLayout(batch.sizes), torch.tensor(batch.sizes)
        graph_N = torch.arange(len(sizes_B)).repeat_interleave(sizes_B)
        x_ND, e_ED = self.node_encoder(batch), self.edge_encoder(batch, layout)
        for layer in self.layers:
            x_ND = layer(x_ND, batch.edge_index_2E, graph_N, edge_attr=e_ED)
        return self.head(x_ND, layout)


def our_part(name: str) -> str:
    """Return the name in this package of a tensor of PyG's layer."""
    for ours, theirs in PARTS:
        if name.startswith(theirs):
            return ours + name[len(theirs) :]
    raise KeyError(name)


def our_name(name: str) -> str:
    """Return the name in this package of a parameter of the model."""
    parts = name.split(".", 2)
    return ".".join([*parts[:2], our_part(parts[2])]) if parts[0] == "layers" else name
