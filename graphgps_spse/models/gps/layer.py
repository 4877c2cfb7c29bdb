"""The layer that GPS and CSA share: message passing along edges beside attention, then a feed-forward network."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.errors import ConfigError
from graphgps_spse.models.modules.activations import ActivationOptions, build_activation
from graphgps_spse.models.modules.message_passing import GAT, GCN, GINE, AfterConvolution, GatedGCN
from graphgps_spse.models.modules.stable_distance import DistanceGate
from graphgps_spse.models.options import TransformerOptions
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.options import Options, option

LOCAL_PARTS = ("GINE", "CustomGatedGCN", "GCN", "GAT", "None")
GLOBAL_PARTS = ("Transformer", "BiasedTransformer", "Performer", "None")
"""Global parts of GPS."""
WITHOUT_EDGE_FEATURES = ("GCN", "None")
"""Local parts that do not read edge features."""
GATED_PARTS = ("GINE", "CustomGatedGCN")
"""Local parts whose messages can be weighted by a distance of positional encodings."""


class LayerOptions(Options, section="gt"):
    """What a layer of GPS or CSA is made of."""

    layer_type: str = option(
        "GINE+Transformer",
        "local part (GINE, CustomGatedGCN, GCN, GAT, None) + global part (Transformer, BiasedTransformer, Performer, "
        "CSA, None)",
    )
    batch_norm: bool = option(True, "GPS and CSA: BatchNorm after each part of a layer; without it there is no norm")


class GPSLayer(nn.Module):
    """x <- BN(l + FFN(l)), l = BN(local part) + BN(x + Drop(attention)), both of one x; either part may be None."""

    def __init__(
        self,
        dim: int,
        *,
        local: nn.Module | None,
        attention: nn.Module | None,
        activation: str,
        dropout: float,
        batch_norm: bool = True,
    ) -> None:
        """Without `batch_norm`, BN in the equations is the identity."""
        super().__init__()
        self.dropout, self.local, self.attention = dropout, local, attention
        norm = nn.BatchNorm1d if batch_norm else nn.Identity
        self.norm_local = None if local is None else norm(dim)
        self.norm_attention = None if attention is None else norm(dim)
        self.ffn = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            build_activation(activation),
            nn.Dropout(dropout),
            nn.Linear(2 * dim, dim),
            nn.Dropout(dropout),
        )
        self.norm_ffn = norm(dim)

    def forward(
        self,
        x_ND: Tensor,
        e_ED: Tensor | None,
        edges: EdgeLayout | None,
        pairs: Any,
        weights: list[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the next node and edge features; the local part reads `edges` and attention reads `pairs`.

        Attention weights are appended to `weights`.
        """
        parts = []
        if self.local is not None and self.norm_local is not None:
            local_ND, e_ED = self.local(x_ND, e_ED, edges)
            parts.append(self.norm_local(local_ND))
        if self.attention is not None and self.norm_attention is not None:
            given = (x_ND, pairs) if weights is None else (x_ND, pairs, weights)
            global_ND = F.dropout(self.attention(*given), self.dropout, self.training)
            parts.append(self.norm_attention(x_ND + global_ND))
        x_ND = parts[0] + parts[1] if len(parts) == 2 else parts[0]
        return self.norm_ffn(x_ND + self.ffn(x_ND)), e_ED


def build_layers(cfg: Any, attention: Callable[..., nn.Module] | None, *, gated: bool = False) -> nn.ModuleList:
    """Return the layers that `gt` and `gnn.act` describe; raises ConfigError for widths that do not fit.

    `attention(dim, num_heads, dropout=..)` returns the global part of one layer; None where there is none. If `gated`,
    the distance of positional encodings weights messages.
    """
    options, activation = TransformerOptions.from_cfg(cfg), ActivationOptions.from_cfg(cfg).act
    layer = LayerOptions.from_cfg(cfg)
    local, dim = layer.layer_type.partition("+")[0], options.dim_hidden
    return nn.ModuleList(
        GPSLayer(
            dim,
            local=local_part(local, options, activation, is_last=index == options.layers - 1, gated=gated),
            attention=attention(dim, options.n_heads, dropout=options.attn_dropout) if attention else None,
            activation=activation,
            dropout=options.dropout,
            batch_norm=layer.batch_norm,
        )
        for index in range(options.layers)
    )


def build_layer_type(cfg: Any, global_parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the local and the global part that `gt.layer_type` names. Raises ConfigError for others."""
    layer_type = LayerOptions.from_cfg(cfg).layer_type
    local, plus, attention = layer_type.partition("+")
    if (local, attention) == ("None", "None"):
        raise ConfigError("gt.layer_type: None+None leaves layers that never look at other nodes")
    if plus and local in LOCAL_PARTS and attention in global_parts:
        return local, attention
    other = "CSAModel" if attention == "CSA" else "GPSModel" if attention in GLOBAL_PARTS else ""
    hint = f" Set model.type={other} for this one." if other and local in LOCAL_PARTS else ""
    raise ConfigError(
        f"gt.layer_type: '{layer_type}' must be a local part ({', '.join(LOCAL_PARTS)}) + a global part "
        f"({', '.join(global_parts)}).{hint}"
    )


def local_part(
    name: str, options: TransformerOptions, activation: str, *, is_last: bool, gated: bool = False
) -> nn.Module | None:
    """Return one layer's message passing; None for "None". `gated` is for GATED_PARTS only."""
    dim, after = options.dim_hidden, AfterConvolution(options.dropout)
    if name == "GINE":
        return GINE(dim, activation=activation, after=after, gate=DistanceGate(dim) if gated else None)
    if name == "CustomGatedGCN":
        gate, dropout = DistanceGate(dim, activation=activation) if gated else None, options.dropout
        return GatedGCN(dim, activation=activation, dropout=dropout, update_edges=not is_last, gate=gate)
    if name == "GCN":
        return GCN(dim, after=after)
    return GAT(dim, options.n_heads, after=after) if name == "GAT" else None
