"""GPS (Rampasek et al. 2022): in each layer, message passing along edges beside attention among a graph's nodes."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.models.encoders import (
    EdgeEncoder,
    NodeEncoder,
    build_edge_encoder,
    build_node_encoder,
    check_all_used,
    split_edge_name,
)
from graphgps_spse.models.gps_attention import GraphAttention, NodeBlocks
from graphgps_spse.models.heads import build_activation
from graphgps_spse.models.local import GINE, EdgeLayout, GatedGCN
from graphgps_spse.models.pairs import PairLayout
from graphgps_spse.registry import heads, models

LOCAL_PARTS = ("GINE", "CustomGatedGCN", "None")


class GPSLayer(nn.Module):
    """x <- BN(l + FFN(l)), l = BN(local part) + BN(x + Drop(attention)), both of one x; either part may be None."""

    def __init__(
        self, dim: int, *, local: nn.Module | None, attention: nn.Module | None, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.dropout, self.local, self.attention = dropout, local, attention
        self.norm_local = None if local is None else nn.BatchNorm1d(dim)
        self.norm_attention = None if attention is None else nn.BatchNorm1d(dim)
        self.ffn = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            build_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(2 * dim, dim),
            nn.Dropout(dropout),
        )
        self.norm_ffn = nn.BatchNorm1d(dim)

    def forward(
        self, x_ND: Tensor, e_ED: Tensor | None, edges: EdgeLayout | None, pairs: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the next node and edge features; `edges` is what the local part reads, `pairs` what attention does."""
        parts = []
        if self.local is not None and self.norm_local is not None:
            local_ND, e_ED = self.local(x_ND, e_ED, edges)
            parts.append(self.norm_local(local_ND))
        if self.attention is not None and self.norm_attention is not None:
            global_ND = F.dropout(self.attention(x_ND, pairs), self.dropout, self.training)
            parts.append(self.norm_attention(x_ND + global_ND))
        x_ND = parts[0] + parts[1] if len(parts) == 2 else parts[0]
        return self.norm_ffn(x_ND + self.ffn(x_ND)), e_ED


@models.register("GPSModel")
class GPSModel(nn.Module):
    """GPS with GINE, gated graph convolution or no local part, and multi-head attention or no global part."""

    def __init__(
        self,
        *,
        node_encoder: NodeEncoder,
        edge_encoder: EdgeEncoder | None,
        head: nn.Module,
        local: str,
        has_attention: bool,
        dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float,
        attn_dropout: float,
        activation: str,
    ) -> None:
        """`edge_encoder` is None where there is no local part, as nothing else reads edges."""
        super().__init__()
        if local == "None" and not has_attention:
            raise ConfigError("gt.layer_type: None+None leaves layers that never look at other nodes")
        check_sizes(dim, num_layers, num_heads, dropout, attn_dropout)
        self.node_encoder, self.edge_encoder = node_encoder, edge_encoder
        self.layers = nn.ModuleList(
            GPSLayer(
                dim,
                local=local_part(local, dim, activation, dropout, is_last=index == num_layers - 1),
                attention=GraphAttention(dim, num_heads, dropout=attn_dropout) if has_attention else None,
                activation=activation,
                dropout=dropout,
            )
            for index in range(num_layers)
        )
        self.head = head

    @classmethod
    def from_cfg(cls, cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim_out: int) -> "GPSModel":
        """Read `gt`, `gnn` and the encoders' names. Raises ConfigError for an encoding that nothing reads."""
        local, attention = split_layer_type(cfg.gt.layer_type, ("Transformer", "None"))
        dim, edge_name = cfg.gt.dim_hidden, cfg.dataset.edge_encoder_name
        if cfg.gnn.dim_inner != dim:
            raise ConfigError(f"gnn.dim_inner={cfg.gnn.dim_inner} must equal gt.dim_hidden={dim}")
        pair_name = None if local == "None" else split_edge_name(edge_name)[1]
        check_all_used(encodings, node_name=cfg.dataset.node_encoder_name, pair_names=[pair_name or ""])
        return cls(
            node_encoder=build_node_encoder(cfg, spec, encodings, dim),
            edge_encoder=None if local == "None" else build_edge_encoder(cfg, spec, encodings, dim),
            head=heads.get(cfg.gnn.head).from_cfg(cfg, dim, dim_out),
            local=local,
            has_attention=attention == "Transformer",
            dim=dim,
            num_layers=cfg.gt.layers,
            num_heads=cfg.gt.n_heads,
            dropout=cfg.gt.dropout,
            attn_dropout=cfg.gt.attn_dropout,
            activation=cfg.gnn.act,
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [B, dim_out] or [N, dim_out], in the order of the batch."""
        device = batch.x_NF.device
        layout, blocks = PairLayout(batch.sizes, device), NodeBlocks(batch.sizes, device)
        if self.training:
            check_batch(layout)
        edges, e_ED = None, None
        if self.edge_encoder is not None:
            edges = EdgeLayout(batch.edge_index_2E, layout.num_nodes)
            e_ED = self.edge_encoder(batch, layout).index_select(0, edges.order_E)
        x_ND = self.node_encoder(batch)
        for layer in self.layers:
            x_ND, e_ED = layer(x_ND, e_ED, edges, blocks)
        return self.head(x_ND, layout)


def split_layer_type(layer_type: str, global_parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the local and the global part that `gt.layer_type` names. Raises ConfigError for others."""
    local, plus, attention = layer_type.partition("+")
    if plus and local in LOCAL_PARTS and attention in global_parts:
        return local, attention
    other = {"CSA": "CSAModel", "Transformer": "GPSModel"}.get(attention, "")
    hint = f" Set model.type={other} for this one." if other and local in LOCAL_PARTS else ""
    raise ConfigError(
        f"gt.layer_type: '{layer_type}' must be a local part ({', '.join(LOCAL_PARTS)}) + a global part "
        f"({', '.join(global_parts)}).{hint}"
    )


def local_part(name: str, dim: int, activation: str, dropout: float, *, is_last: bool) -> nn.Module | None:
    """Return one layer's message passing; None for "None"."""
    if name == "GINE":
        return GINE(dim, activation=activation, dropout=dropout)
    if name == "CustomGatedGCN":
        return GatedGCN(dim, activation=activation, dropout=dropout, update_edges=not is_last)
    return None


def check_sizes(dim: int, num_layers: int, num_heads: int, dropout: float, attn_dropout: float) -> None:
    """Raise ConfigError for numbers that no transformer can have."""
    if num_layers < 1 or num_heads < 1 or dim < 1 or dim % num_heads:
        raise ConfigError(
            f"gt.layers={num_layers}, gt.n_heads={num_heads}, gt.dim_hidden={dim}: at least one layer and one head, "
            "and a width that is a multiple of the heads"
        )
    for key, rate in (("gt.dropout", dropout), ("gt.attn_dropout", attn_dropout)):
        if not 0 <= rate < 1:
            raise ConfigError(f"{key}: {rate} is not a rate of at least 0 and below 1")


def check_batch(layout: PairLayout) -> None:
    """Raise DataError for a training batch that BatchNorm cannot use."""
    if layout.num_nodes < 2:
        raise DataError("a training batch is a single node, which BatchNorm cannot use; raise train.batch_size")
