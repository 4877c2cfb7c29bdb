"""Nodes of the first layer: raw features and encodings side by side, as `X+A+B` in the name of the encoder says.

`TypeDictNode+RWSE` is [TypeDictNode(x) | RWSE], with `posenc_RWSE.dim_pe` columns of the latter. Vectors of degrees are
added. GraphGym's layers before message passing follow, if there are any.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.modules.activations import ActivationOptions, build_activation
from graphgps_spse.models.modules.encoder_names import EncoderOptions, enabled_encoding, split_encoder_name
from graphgps_spse.models.modules.positional_encoders import DegreeEmbedding, build_positional_encoder
from graphgps_spse.models.options import LARGEST_DEPTH, DropoutOptions, L2NormOptions
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.options import Options, option
from graphgps_spse.registry import encodings as known_encodings
from graphgps_spse.registry import node_encoders


class PreMPOptions(Options, section="gnn"):
    """Layers between the node encoder and the model."""

    layers_pre_mp: int = option(
        0,
        "layers between the node encoder and the model: Linear, BatchNorm, dropout, act",
        at_least=0,
        at_most=LARGEST_DEPTH,
    )


class PreMPLayer(nn.Module):
    """Linear without bias, BatchNorm, dropout, activation and, with `l2norm`, rows of length 1: a layer of GraphGym."""

    def __init__(self, dim_in: int, dim: int, *, activation: str, dropout: float, l2norm: bool) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(dim_in, dim, bias=False), nn.BatchNorm1d(dim)
        self.dropout, self.activation, self.l2norm = nn.Dropout(dropout), build_activation(activation), l2norm

    def forward(self, x_ND: Tensor) -> Tensor:
        """Return [N, D]."""
        x_ND = self.activation(self.dropout(self.norm(self.linear(x_ND))))
        return F.normalize(x_ND, dim=1) if self.l2norm else x_ND


class NodeEncoder(nn.Module):
    """Raw node features, one positional encoder for each encoding of `parts`, then layers before MP.

    The encoders of `added`, which have all columns, are added to both.
    """

    def __init__(
        self,
        raw: nn.Module,
        parts: Mapping[str, nn.Module],
        pre_mp: Sequence[nn.Module] = (),
        added: Mapping[str, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.raw, self.parts, self.pre_mp = raw, nn.ModuleDict(parts), nn.Sequential(*pre_mp)
        self.added = nn.ModuleDict(added or {})

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [N, D]."""
        columns = [self.raw(batch.x_NF)]
        for name, part in self.parts.items():
            if getattr(part, "reads_edges", False):
                columns.append(part(batch.node[name], EdgeLayout(batch.edge_index_2E, len(batch.x_NF))))
            else:
                columns.append(part(batch.node[name]))
        x_ND = torch.cat(columns, dim=1)
        for name, part in self.added.items():
            x_ND = x_ND + part(batch.node[name])
        return self.pre_mp(x_ND)


def build_node_encoder(
    cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int, *, elsewhere: str = ""
) -> NodeEncoder:
    """Read `dataset.node_encoder_name`, X+A+B, and `gnn.layers_pre_mp`.

    The name of an encoding alone implies LinearNode. `elsewhere` is the name of an encoding that another part
    of the model reads.
    """
    raw, names = split_encoder_name(EncoderOptions.from_cfg(cfg).node_encoder_name, "node")
    if raw in known_encodings.names():
        raw, names = "LinearNode", [raw, *names]
    parts, added = {}, {}
    for name in names:
        encoding = enabled_encoding(encodings, name, "node")
        if name == elsewhere:
            continue
        if encoding.node_values == "degrees":
            added[name] = DegreeEmbedding(encoding.num_degrees, dim)
        else:
            parts[name] = build_positional_encoder(cfg, encoding)
    dim_parts = sum(part.dim for part in parts.values())
    dim_raw = dim - dim_parts
    if dim_raw < 1:
        widths = ", ".join(f"posenc_{name}.dim_pe={part.dim}" for name, part in parts.items())
        raise ConfigError(f"gt.dim_hidden={dim} leaves no column for the raw node features next to {widths}")
    if raw == "none" and not added and PreMPOptions.from_cfg(cfg).layers_pre_mp:
        dim_raw = spec.node_input.size  # of any width, as the first layer before message passing reads it
    raw_encoder = node_encoders.get(raw).from_spec(spec.node_input, dim_raw)
    return NodeEncoder(raw_encoder, parts, build_pre_mp(cfg, dim_raw + dim_parts, dim), added)


def build_pre_mp(cfg: Any, dim_in: int, dim: int) -> list[nn.Module]:
    """Return the layers between the node encoder and the model."""
    number = PreMPOptions.from_cfg(cfg).layers_pre_mp
    if not number:
        return []
    activation, l2norm = ActivationOptions.from_cfg(cfg).act, L2NormOptions.from_cfg(cfg).l2norm
    dropout, widths = DropoutOptions.from_cfg(cfg).dropout, [dim_in, *(dim for _ in range(number - 1))]
    return [PreMPLayer(width, dim, activation=activation, dropout=dropout, l2norm=l2norm) for width in widths]
