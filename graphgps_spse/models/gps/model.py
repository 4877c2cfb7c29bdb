"""GPS (Rampasek et al. 2022): in each layer, message passing along edges beside attention among a graph's nodes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.models.gps.attention import GraphAttention
from graphgps_spse.models.gps.layer import GATED_PARTS, WITHOUT_EDGE_FEATURES, build_layer_type, build_layers
from graphgps_spse.models.gps.performer import PerformerAttention
from graphgps_spse.models.modules.edge_encoder import EdgeEncoder, build_edge_encoder
from graphgps_spse.models.modules.encoder_names import EncoderOptions, check_all_used, split_encoder_name
from graphgps_spse.models.modules.heads import build_head
from graphgps_spse.models.modules.layout import layout_of
from graphgps_spse.models.modules.node_encoder import NodeEncoder, build_node_encoder
from graphgps_spse.models.modules.stable_distance import StableDistance, build_stable_distance
from graphgps_spse.models.options import KernelOptions, TransformerOptions
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.ops.graph_attention import NodeBlocks
from graphgps_spse.registry import models


@models.register("GPSModel")
class GPSModel(nn.Module):
    """GPS with GINE, gated graph convolution, GCN, GAT or no local part, and multi-head attention or none."""

    def __init__(
        self,
        *,
        node_encoder: NodeEncoder,
        edge_encoder: EdgeEncoder | None,
        layers: nn.ModuleList,
        head: nn.Module,
        stable_distance: StableDistance | None = None,
    ) -> None:
        """`edge_encoder` is None where no local part reads edge features, as nothing else does.

        `stable_distance` weights the messages of the local parts.
        """
        super().__init__()
        self.node_encoder, self.edge_encoder, self.layers, self.head = node_encoder, edge_encoder, layers, head
        self.stable_distance = stable_distance

    @classmethod
    def from_cfg(cls, cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim_out: int) -> "GPSModel":
        """Read `gt`, `gnn` and the encoders' names. Raises ConfigError for an encoding that nothing reads."""
        local, attention = build_layer_type(cfg, ("Transformer", "Performer", "None"))
        dim, reads_edges = TransformerOptions.from_cfg(cfg).dim_hidden, local not in WITHOUT_EDGE_FEATURES
        kernels = KernelOptions.from_cfg(cfg).kernels
        encoders = EncoderOptions.from_cfg(cfg)
        _, pair_names = split_encoder_name(encoders.edge_encoder_name, "edge")
        check_all_used(
            encodings,
            node_names=encoders.node_encoder_name.split("+"),
            pair_names=pair_names if reads_edges else [],
            reads_edges=reads_edges,
        )
        stable = build_stable_distance(cfg, encodings, dim) if local in GATED_PARTS else None
        return cls(
            node_encoder=build_node_encoder(cfg, spec, encodings, dim, elsewhere=stable.name if stable else ""),
            edge_encoder=build_edge_encoder(cfg, spec, encodings, dim) if reads_edges else None,
            head=build_head(cfg, spec, dim, dim_out),
            layers=build_layers(
                cfg,
                {
                    "None": None,
                    "Performer": PerformerAttention,
                    "Transformer": partial(GraphAttention, kernels=kernels),
                }[attention],
                gated=stable is not None,
            ),
            stable_distance=stable,
        )

    def forward(self, batch: GraphBatch, *, return_attention: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return [B, dim_out] or [N, dim_out], in the order of the batch.

        With `return_attention`, return also the attention weights of each layer before dropout, [P, H], in the order
        of PairLayout, computed in plain PyTorch beside the kernels; an empty list where no layer has attention.
        """
        weights: list[Tensor] | None = [] if return_attention else None
        layout = layout_of(batch, training=self.training)
        edges, e_ED = None, None
        if self.layers[0].local is not None:
            edges = EdgeLayout(batch.edge_index_2E, layout.num_nodes)
        if self.edge_encoder is not None and edges is not None:
            e_ED = self.edge_encoder(batch, layout).index_select(0, edges.order_E)
        if self.stable_distance is not None and edges is not None:
            edges.distance_E1 = self.stable_distance(batch, edges)
        x_ND = self.node_encoder(batch)
        blocks = NodeBlocks(batch.sizes, x_ND.device)
        for layer in self.layers:
            x_ND, e_ED = layer(x_ND, e_ED, edges, blocks, weights)
        out = self.head(x_ND, layout)
        return out if weights is None else (out, weights)
