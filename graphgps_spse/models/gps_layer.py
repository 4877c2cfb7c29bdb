"""The layer that GPS and CSA share: message passing along edges beside attention, then a feed-forward network."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.errors import ConfigError
from graphgps_spse.models.checks import check_sizes
from graphgps_spse.models.heads import build_activation
from graphgps_spse.models.message_passing import GINE, GatedGCN
from graphgps_spse.ops.edge_layout import EdgeLayout

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


def build_layers(cfg: Any, attention: Callable[..., nn.Module] | None) -> nn.ModuleList:
    """Return the layers that `gt` and `gnn.act` describe; raises ConfigError for sizes that cannot be.

    `attention(dim, num_heads, dropout=..)` makes the global part of one layer; None where there is none.
    """
    dim, num_layers, num_heads, dropout = cfg.gt.dim_hidden, cfg.gt.layers, cfg.gt.n_heads, cfg.gt.dropout
    check_sizes(
        dim=dim,
        dim_inner=cfg.gnn.dim_inner,
        num_layers=num_layers,
        num_heads=num_heads,
        dropout=dropout,
        attn_dropout=cfg.gt.attn_dropout,
    )
    local, activation = cfg.gt.layer_type.partition("+")[0], cfg.gnn.act
    return nn.ModuleList(
        GPSLayer(
            dim,
            local=local_part(local, dim, activation, dropout, is_last=index == num_layers - 1),
            attention=attention(dim, num_heads, dropout=cfg.gt.attn_dropout) if attention else None,
            activation=activation,
            dropout=dropout,
        )
        for index in range(num_layers)
    )


def split_layer_type(layer_type: str, global_parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the local and the global part that `gt.layer_type` names. Raises ConfigError for others."""
    local, plus, attention = layer_type.partition("+")
    if (local, attention) == ("None", "None"):
        raise ConfigError("gt.layer_type: None+None leaves layers that never look at other nodes")
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
