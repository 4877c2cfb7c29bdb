"""CSA (Menegaux et al. 2023): the layers of GPS with chromatic self-attention, whose channels pair features filter.

The features of pairs (csa_pairs.py) are the same in every layer; the attention itself is ops/chromatic_attention.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch, InputSpec
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.csa_pairs import PairEncoder, PairFeatures
from graphgps_spse.models.encoders import (
    NodeEncoder,
    build_node_encoder,
    build_pair_encoder,
    check_all_used,
    split_encoder_name,
)
from graphgps_spse.models.gps_layer import build_layer_type, build_layers
from graphgps_spse.models.heads import build_head
from graphgps_spse.models.layout import layout_of
from graphgps_spse.models.options import KernelOptions, TransformerOptions
from graphgps_spse.ops.chromatic_attention import AttentionInput, PairMap, chromatic_attention, prepare
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.registry import edge_encoders, models


class PairInput(NamedTuple):
    """What the attention of every layer reads of pairs."""

    layout: PairLayout
    features: PairFeatures
    shared: tuple[PairMap, PairMap] | None
    """A and B of all layers, where they are shared."""


class ChromaticAttention(nn.Module):
    """Attention whose scores and values are shifted, channel by channel, by maps of the pair features."""

    def __init__(self, dim: int, num_heads: int, *, dropout: float, has_maps: bool, kernels: str = "auto") -> None:
        """Without `has_maps` the layer reads those that all layers share."""
        super().__init__()
        self.num_heads, self.dropout, self.kernels = num_heads, dropout, kernels
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.pair_score = nn.Linear(dim, dim, bias=False) if has_maps else None
        self.pair_value = nn.Linear(dim, dim, bias=False) if has_maps else None
        self.out = nn.Linear(dim, dim)

    def forward(self, x_ND: Tensor, pairs: PairInput) -> Tensor:
        """Return [N, D]."""
        layout, features = pairs.layout, pairs.features
        dropout_mask_P1 = None
        if self.training and self.dropout:
            dropout_mask_P1 = draw_dropout_mask(layout.num_pairs, 1, self.dropout, x_ND)
        score, value = pairs.shared or (features.mapped(m) for m in (self.pair_score, self.pair_value) if m is not None)
        given = AttentionInput(
            layout=layout,
            num_heads=self.num_heads,
            q_ND=self.query(x_ND) * (x_ND.shape[1] // self.num_heads) ** -0.5,
            k_ND=self.key(x_ND),
            v_ND=self.value(x_ND),
            z_PC=features.z_PC,
            rows_E=features.rows_E,
            score=score,
            value=value,
            dropout_mask_P1=dropout_mask_P1,
        )
        return self.out(chromatic_attention(given, kernels=self.kernels))

    def prepare_kernels(self) -> None:
        """Compile the kernels for the device of the weights. Raises ConfigError where there are none to be had."""
        prepare(self.query.weight, self.num_heads, kernels=self.kernels)


@models.register("CSAModel")
class CSAModel(nn.Module):
    """CSA on packed pairs, alone or beside GINE or the gated graph convolution."""

    def __init__(
        self,
        *,
        node_encoder: NodeEncoder,
        pair_encoder: PairEncoder,
        layers: nn.ModuleList,
        head: nn.Module,
        dim_shared: int = 0,
    ) -> None:
        """`dim_shared` > 0: one map of the pair features to scores and one to values, with bias, for all layers."""
        super().__init__()
        self.node_encoder, self.pair_encoder, self.layers, self.head = node_encoder, pair_encoder, layers, head
        self.pair_score = nn.Linear(dim_shared, dim_shared) if dim_shared else None
        self.pair_value = nn.Linear(dim_shared, dim_shared) if dim_shared else None

    @classmethod
    def from_cfg(cls, cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim_out: int) -> "CSAModel":
        """Read `gt`, `gnn` and the encoders' names. Raises ConfigError for an encoding that nothing reads."""
        build_layer_type(cfg, ("CSA",))
        dim, share_maps = TransformerOptions.from_cfg(cfg).dim_hidden, cfg.dataset.edge_encoder_shared
        kernels = KernelOptions.from_cfg(cfg).kernels
        return cls(
            node_encoder=build_node_encoder(cfg, spec, encodings, dim),
            pair_encoder=build_pair_features(cfg, spec, encodings, dim),
            head=build_head(cfg, spec, dim, dim_out),
            layers=build_layers(cfg, partial(ChromaticAttention, has_maps=not share_maps, kernels=kernels)),
            dim_shared=dim if share_maps else 0,
        )

    @property
    def values_kept_of_pair(self) -> int:
        """Values that training keeps of each node pair at least: three kinds, and in every layer a dropout mask."""
        return 3 + len(self.layers)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [B, dim_out] or [N, dim_out], in the order of the batch."""
        layout = layout_of(batch, training=self.training)
        edge = self.pair_encoder.edges(batch, layout)
        features = self.pair_encoder(batch, layout, edge)
        shared = None
        if self.pair_score is not None and self.pair_value is not None:
            shared = features.mapped(self.pair_score), features.mapped(self.pair_value)
        edges, e_ED = None, None
        if self.layers[0].local is not None:
            edges = EdgeLayout(edge.edge_index_2E, layout.num_nodes)
            e_ED = self.pair_encoder.of_edges(batch, features).index_select(0, edges.order_E)
        x_ND, pairs = self.node_encoder(batch), PairInput(layout, features, shared)
        for layer in self.layers:
            x_ND, e_ED = layer(x_ND, e_ED, edges, pairs)
        return self.head(x_ND, layout)


def build_pair_features(cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim: int) -> PairEncoder:
    """Read `dataset.edge_encoder_name`, X+A+B, and what rings are, if they are encoded."""
    raw, names = split_encoder_name(cfg.dataset.edge_encoder_name, "edge")
    rings = "none"
    if any(encoding.name == "Rings" for encoding in encodings):
        rings = "edges" if cfg.dataset.rings_coalesce_edges else "kinds"
    node_names = cfg.dataset.node_encoder_name.split("+")
    check_all_used(encodings, node_names=node_names, pair_names=[*names, "Rings"])
    edge_input = spec.edge_input
    if rings == "edges":
        if edge_input.kind != "types":
            raise ConfigError("dataset.rings_coalesce_edges: ring pairs become edges only where edges have a type")
        edge_input = InputSpec("types", 2 * edge_input.size)
    return PairEncoder(
        edge_encoders.get(raw).from_spec(edge_input, dim // 2 if names else dim),
        dim,
        pairs=build_pair_encoder(encodings, names, dim),
        rings=rings,
        num_types=spec.edge_input.size,
    )
