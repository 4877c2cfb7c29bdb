"""What enters the first layer: raw features and encodings side by side, as `X+PE` in an encoder's name says.

`TypeDictNode+RWSE` is [TypeDictNode(x) | RWSE], with `posenc_RWSE.dim_pe` columns of the latter. `TypeDictEdge+SPSE` is
[TypeDictEdge(edge) | W f(S)_uv + b], half of the columns each: the features of an edge are narrowed to make room.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.registry import edge_encoders, node_encoders, positional_encoders


class NodeEncoder(nn.Module):
    """Raw node features, then one positional encoder for each encoding of `parts`."""

    def __init__(self, raw: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.raw, self.parts = raw, nn.ModuleDict(parts)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [N, D]."""
        return torch.cat([self.raw(batch.x_NF), *(part(batch.node[name]) for name, part in self.parts.items())], dim=1)


class PairLinear(nn.Module):
    """A linear map with bias of the pair channels of one encoding, without the identity if it has one."""

    def __init__(self, encoding: str, num_channels: int, dim: int, *, has_identity: bool) -> None:
        super().__init__()
        self.encoding, self.has_identity = encoding, has_identity
        self.linear = nn.Linear(num_channels - has_identity, dim)

    def channels(self, pair_RC: Tensor) -> Tensor:
        """Return the channels that `weight` maps."""
        return pair_RC

    def weight(self) -> Tensor:
        """Return [dim, C] with a zero column for the identity."""
        return F.pad(self.linear.weight, (1, 0)) if self.has_identity else self.linear.weight

    def constant(self) -> Tensor:
        """Return what every pair gets, [dim]."""
        return self.linear.bias

    def forward(self, pair_RC: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(pair_RC, self.weight(), self.linear.bias)


class PairDistance(nn.Module):
    """One learned vector for each shortest-path distance 0..max_length; zero for pairs that are farther apart."""

    def __init__(self, encoding: str, max_length: int, dim: int) -> None:
        super().__init__()
        self.encoding = encoding
        self.embedding = nn.Embedding(max_length + 1, dim)

    def channels(self, pair_R1: Tensor) -> Tensor:
        """Return which distance it is, one-hot, [rows, max_length + 1]; no 1 for others, -1 among them."""
        lengths = torch.arange(self.embedding.num_embeddings, device=pair_R1.device)
        return (pair_R1 == lengths).to(pair_R1.dtype)

    def weight(self) -> Tensor:
        """Return [dim, max_length + 1]."""
        return self.embedding.weight.t()

    def constant(self) -> Tensor:
        """Return what every pair gets, [dim]: nothing."""
        return self.embedding.weight.new_zeros(self.embedding.embedding_dim)

    def forward(self, pair_R1: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(self.channels(pair_R1), self.weight())


class EdgeEncoder(nn.Module):
    """Raw features of edges, and beside them the encoding of their pairs: edge u -> v reads row (u, v)."""

    def __init__(self, raw: nn.Module, pairs: PairLinear | PairDistance | None) -> None:
        super().__init__()
        self.raw, self.pairs = raw, pairs

    def forward(self, batch: GraphBatch, layout: PairLayout) -> Tensor:
        """Return [E, D]."""
        raw_ED = self.raw(edge_features(batch))
        if self.pairs is None:
            return raw_ED
        rows_E = layout.edge_rows(batch.edge_index_2E)
        return torch.cat([raw_ED, self.pairs(batch.pair[self.pairs.encoding][rows_E])], dim=1)


def edge_features(batch: GraphBatch) -> Tensor:
    """Return the raw features of the edges, [E, F]; F = 0 where the data has none."""
    if batch.edge_attr_EF is not None:
        return batch.edge_attr_EF
    return batch.x_NF.new_empty(batch.edge_index_2E.shape[1], 0)


def build_node_encoder(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> NodeEncoder:
    """Read `dataset.node_encoder_name`; the name of an encoding alone means LinearNode beside it."""
    name = cfg.dataset.node_encoder_name
    raw, *names = name.split("+")
    if raw in positional_encoders.names():
        raw, names = "LinearNode", [raw, *names]
    parts = {}
    for part in names:
        encoding = enabled_encoding(encodings, part, "node", name)
        parts[part] = positional_encoders.get(part).from_cfg(cfg, encoding)
    dim_raw = dim - sum(part.dim for part in parts.values())
    if dim_raw < 1:
        widths = ", ".join(f"posenc_{name}.dim_pe={part.dim}" for name, part in parts.items())
        raise ConfigError(f"gt.dim_hidden={dim} leaves no column for the raw node features beside {widths}")
    return NodeEncoder(node_encoders.get(raw).from_spec(spec.node_input, dim_raw), parts)


def build_edge_encoder(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> EdgeEncoder:
    """Read `dataset.edge_encoder_name`."""
    raw, name = split_edge_name(cfg.dataset.edge_encoder_name)
    pairs = None if name is None else build_pair_map(cfg, encodings, name, dim)
    dim_raw = dim if pairs is None else dim // 2
    return EdgeEncoder(edge_encoders.get(raw).from_spec(spec.edge_input, dim_raw), pairs)


def build_pair_map(cfg: Any, encodings: Sequence[Encoding], name: str, dim: int) -> PairLinear | PairDistance:
    """Return the map of an encoding to the second half of `dim` columns."""
    encoding = enabled_encoding(encodings, name, "pair", cfg.dataset.edge_encoder_name)
    if dim % 2:
        raise ConfigError(f"gt.dim_hidden={dim} must be even: '+{name}' in dataset.edge_encoder_name takes half of it")
    if name == "SPD":
        return PairDistance(name, cfg.posenc_SPD.max_length, dim // 2)
    return PairLinear(name, encoding.dim_pair, dim // 2, has_identity=encoding.has_identity)


def split_edge_name(name: str) -> tuple[str, str | None]:
    """Return the raw encoder's name, and the encoding's behind the "+" or None."""
    raw, _, encoding = name.partition("+")
    return raw, None if encoding in ("", "None") else encoding


def check_all_used(encodings: Sequence[Encoding], *, node_name: str, pair_names: Sequence[str]) -> None:
    """Raise ConfigError for an encoding that no encoder reads, and for a part of one that could be switched off."""
    alone = {("SPSE", "node"): "posenc_SPSE.node_pe=none", ("RWSE", "pair"): "posenc_RWSE.enable_edges=False"}
    for encoding in encodings:
        name = encoding.name
        read = {"pair": name in pair_names, "node": name in node_name.split("+")}
        if read["node"] and not read["pair"] and getattr(encoding, "node_pe", "") == "rwse":
            raise ConfigError(
                f"nothing reads the path counts of {name}, as its node part holds random walks: add +{name} to "
                "dataset.edge_encoder_name (and set posenc_SPSE.node_pe=none, as the shipped files of GPS do)"
            )
        unread = [part for part in read if getattr(encoding, f"dim_{part}") and not read[part]]
        for part in unread:
            if (name, part) in alone or not any(read.values()):
                cure = alone.get((name, part), "") if any(read.values()) else f"posenc_{name}.enable=False"
                key = {"node": "dataset.node_encoder_name", "pair": "dataset.edge_encoder_name"}[part]
                raise ConfigError(f"nothing reads the {part} part of {name}: set {cure}, or add +{name} to {key}")


def enabled_encoding(encodings: Sequence[Encoding], name: str, what: str, encoder: str) -> Encoding:
    """Return the encoding called `name`; ConfigError unless it is enabled and has the part, "node" or "pair"."""
    for encoding in encodings:
        if encoding.name == name and getattr(encoding, f"dim_{what}") > 0:
            return encoding
    hint = " and posenc_RWSE.enable_edges=True" if (name, what) == ("RWSE", "pair") else ""
    raise ConfigError(
        f"dataset.{'edge' if what == 'pair' else 'node'}_encoder_name: {encoder} reads the {what} part of {name}, "
        f"which is not there; set posenc_{name}.enable=True{hint}"
    )
