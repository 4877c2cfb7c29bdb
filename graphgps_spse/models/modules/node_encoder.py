"""Nodes of the first layer: raw features and encodings side by side, as `X+A+B` in the name of the encoder says.

`TypeDictNode+RWSE` is [TypeDictNode(x) | RWSE], with `posenc_RWSE.dim_pe` columns of the latter.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.modules.encoder_names import EncoderOptions, enabled_encoding, split_encoder_name
from graphgps_spse.models.modules.positional_encoders import build_positional_encoder
from graphgps_spse.registry import encodings as known_encodings
from graphgps_spse.registry import node_encoders


class NodeEncoder(nn.Module):
    """Raw node features, then one positional encoder for each encoding of `parts`."""

    def __init__(self, raw: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.raw, self.parts = raw, nn.ModuleDict(parts)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [N, D]."""
        return torch.cat([self.raw(batch.x_NF), *(part(batch.node[name]) for name, part in self.parts.items())], dim=1)


def build_node_encoder(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> NodeEncoder:
    """Read `dataset.node_encoder_name`, X+A+B; the name of an encoding alone means LinearNode beside it."""
    raw, names = split_encoder_name(EncoderOptions.from_cfg(cfg).node_encoder_name, "node")
    if raw in known_encodings.names():
        raw, names = "LinearNode", [raw, *names]
    parts = {}
    for name in names:
        encoding = enabled_encoding(encodings, name, "node")
        parts[name] = build_positional_encoder(cfg, encoding)
    dim_raw = dim - sum(part.dim for part in parts.values())
    if dim_raw < 1:
        widths = ", ".join(f"posenc_{name}.dim_pe={part.dim}" for name, part in parts.items())
        raise ConfigError(f"gt.dim_hidden={dim} leaves no column for the raw node features beside {widths}")
    return NodeEncoder(node_encoders.get(raw).from_spec(spec.node_input, dim_raw), parts)
