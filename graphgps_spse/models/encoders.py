"""What enters the first layer: raw features and encodings side by side, as `X+A+B` in an encoder's name says.

`TypeDictNode+RWSE` is [TypeDictNode(x) | RWSE], with `posenc_RWSE.dim_pe` columns of the latter. `TypeDictEdge+SPSE` is
[TypeDictEdge(edge) | W f(S)_uv + b], half of the columns each: the features of an edge are narrowed to make room. With
several encodings, `TypeDictEdge+RWSE+SPSE`, W reads their channels side by side.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.positional import build_positional_encoder
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.registry import edge_encoders, nearest, node_encoders
from graphgps_spse.registry import encodings as known_encodings


class NodeEncoder(nn.Module):
    """Raw node features, then one positional encoder for each encoding of `parts`."""

    def __init__(self, raw: nn.Module, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.raw, self.parts = raw, nn.ModuleDict(parts)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [N, D]."""
        return torch.cat([self.raw(batch.x_NF), *(part(batch.node[name]) for name, part in self.parts.items())], dim=1)


class PairChannels:
    """The channels of some pair encodings that a linear map reads, side by side: [P, C] for a batch.

    Categories (Encoding.pair_categories) become a channel each, 1 for the pairs that have it.
    """

    def __init__(self, encodings: Sequence[Encoding], *, identity: bool) -> None:
        """Without `identity` the identity of each encoding that has one is left out."""
        self.encodings = tuple(encodings)
        self._parts = [(e.name, e.pair_categories, e.has_identity and not identity) for e in encodings]
        self.number = sum(e.pair_categories or e.dim_pair - (e.has_identity and not identity) for e in encodings)

    def __call__(self, pair: Mapping[str, Tensor], rows_R: Tensor | None = None) -> Tensor:
        """Return the channels of all pairs, or of the rows given; `pair` holds [P, C] by name of encoding."""
        parts = []
        for name, num_categories, without_identity in self._parts:
            values = pair[name] if rows_R is None else pair[name][rows_R]
            if num_categories:
                values = (values == torch.arange(num_categories, device=values.device)).to(values.dtype)
            parts.append(values[:, 1:] if without_identity else values)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class PairLinear(nn.Module):
    """A linear map with bias of the channels of some pair encodings, but for their identities."""

    def __init__(self, encodings: Sequence[Encoding], dim: int) -> None:
        super().__init__()
        # One encoding's identity stays and meets a column of zeros: that is cheaper than a copy of the other channels.
        self.has_identity = len(encodings) == 1 and encodings[0].has_identity
        self.channels = PairChannels(encodings, identity=self.has_identity)
        self.linear = nn.Linear(self.channels.number - self.has_identity, dim)

    def weight(self) -> Tensor:
        """Return what the channels meet, [dim, C]."""
        return F.pad(self.linear.weight, (1, 0)) if self.has_identity else self.linear.weight

    def constant(self) -> Tensor:
        """Return the bias, [dim]."""
        return self.linear.bias

    def forward(self, channels_RC: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(channels_RC, self.weight(), self.linear.bias)


class PairEmbedding(nn.Module):
    """One learned vector for each category of a pair encoding; zero for pairs that have none."""

    def __init__(self, encoding: Encoding, dim: int) -> None:
        super().__init__()
        self.channels = PairChannels([encoding], identity=False)
        self.embedding = nn.Embedding(encoding.pair_categories, dim)

    def weight(self) -> Tensor:
        """Return what the channels meet, [dim, C]."""
        return self.embedding.weight.t()

    def constant(self) -> Tensor:
        """Return a bias of zero, [dim]."""
        return self.embedding.weight.new_zeros(self.embedding.embedding_dim)

    def forward(self, channels_RC: Tensor) -> Tensor:
        """Return [rows, dim]."""
        return F.linear(channels_RC, self.weight())


class EdgeEncoder(nn.Module):
    """Raw features of edges, and beside them the encodings of their pairs: edge u -> v reads row (u, v)."""

    def __init__(self, raw: nn.Module, pairs: PairLinear | PairEmbedding | None) -> None:
        super().__init__()
        self.raw, self.pairs = raw, pairs

    def forward(self, batch: GraphBatch, layout: PairLayout) -> Tensor:
        """Return [E, D]."""
        raw_ED = self.raw(edge_features(batch))
        if self.pairs is None:
            return raw_ED
        rows_E = layout.edge_rows(batch.edge_index_2E)
        return torch.cat([raw_ED, self.pairs(self.pairs.channels(batch.pair, rows_E))], dim=1)


def edge_features(batch: GraphBatch) -> Tensor:
    """Return the raw features of the edges, [E, F]; F = 0 where the data has none."""
    if batch.edge_attr_EF is not None:
        return batch.edge_attr_EF
    return batch.x_NF.new_empty(batch.edge_index_2E.shape[1], 0)


def build_node_encoder(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> NodeEncoder:
    """Read `dataset.node_encoder_name`, X+A+B; the name of an encoding alone means LinearNode beside it."""
    raw, names = split_encoder_name(cfg.dataset.node_encoder_name, "node")
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


def build_edge_encoder(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> EdgeEncoder:
    """Read `dataset.edge_encoder_name`, X+A+B."""
    raw, names = split_encoder_name(cfg.dataset.edge_encoder_name, "edge")
    pairs = build_pair_encoder(encodings, names, dim)
    dim_raw = dim if pairs is None else dim // 2
    return EdgeEncoder(edge_encoders.get(raw).from_spec(spec.edge_input, dim_raw), pairs)


def build_pair_encoder(
    encodings: Sequence[Encoding], names: Sequence[str], dim: int
) -> PairLinear | PairEmbedding | None:
    """Return the map of the named encodings to the second half of `dim` columns; None without any."""
    if not names:
        return None
    if dim % 2:
        suffix = "".join(f"+{name}" for name in names)
        raise ConfigError(f"gt.dim_hidden={dim} must be even: {suffix} in dataset.edge_encoder_name takes half of it")
    chosen = [enabled_encoding(encodings, name, "pair") for name in names]
    if len(chosen) == 1 and chosen[0].pair_categories:
        return PairEmbedding(chosen[0], dim // 2)
    return PairLinear(chosen, dim // 2)


def split_encoder_name(name: str, what: str) -> tuple[str, list[str]]:
    """Return the raw encoder's name, and those of the encodings behind it, each after a "+"; None stands for none."""
    raw, *names = name.split("+")
    names = [part for part in names if part not in ("", "None")]
    twice = next((part for part in names if names.count(part) > 1), "")
    if twice:
        raise ConfigError(f"dataset.{what}_encoder_name: {name} names {twice} twice")
    return raw, names


def check_all_used(
    encodings: Sequence[Encoding], *, node_names: Sequence[str], pair_names: Sequence[str], reads_edges: bool = True
) -> None:
    """Raise ConfigError for an encoding that no encoder reads, and for a part of one that could be switched off.

    Without `reads_edges` the model has nothing that could read pairs.
    """
    for encoding in encodings:
        name = encoding.name
        cures = {"node": f"add +{name} to dataset.node_encoder_name"}
        cures["pair"] = f"add +{name} to dataset.edge_encoder_name"
        if not reads_edges:
            cures["pair"] = "take a gt.layer_type with message passing, whose edges read it"
        read = {"pair": name in pair_names, "node": name in node_names}
        if read["node"] and not read["pair"] and encoding.pairs_must_be_read:
            raise ConfigError(
                f"nothing reads the path counts of {name}, as its node part holds random walks: {cures['pair']} "
                "(and set posenc_SPSE.node_pe=none, as the shipped files of GPS do)"
            )
        for part in ("pair", "node"):
            if not getattr(encoding, f"dim_{part}") or read[part]:
                continue
            switch = encoding.switches.get(part)
            if any(read.values()) and switch is None:
                continue
            off = switch.off if switch is not None and any(read.values()) else f"posenc_{name}.enable=False"
            raise ConfigError(f"nothing reads the {part} part of {name}: set {off}, or {cures[part]}")


def enabled_encoding(encodings: Sequence[Encoding], name: str, part: str) -> Encoding:
    """Return the encoding called `name`; ConfigError unless it is enabled and has the part, "node" or "pair"."""
    found = next((encoding for encoding in encodings if encoding.name == name), None)
    if found is not None and getattr(found, f"dim_{part}"):
        return found
    key = f"dataset.{'edge' if part == 'pair' else 'node'}_encoder_name"
    if name not in known_encodings.names():
        known = ", ".join(known_encodings.names())
        raise ConfigError(f"{key}: +{name} names no encoding.{nearest(name, known_encodings.names())} Known: {known}")
    switch = known_encodings.get(name).switches.get(part)
    needed = [] if found is not None else [f"posenc_{name}.enable=True"]
    needed += [] if switch is None else [switch.on]
    if not needed:
        raise ConfigError(f"{key}: {name} has no {part} part that +{name} could read; remove +{name}")
    raise ConfigError(f"{key}: +{name} reads the {part} part of {name}, which is off; set {' and '.join(needed)}")
