"""GRIT, the graph transformer of Ma et al. (2023), whose attention reads and updates a feature of every node pair.

Each layer keeps a residual stream of nodes x [N, D] and one of pairs e [P, D], normalised after each update. The work
on pairs is ops/grit_pairs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.encoders import (
    NodeEncoder,
    PairChannels,
    PairEmbedding,
    build_node_encoder,
    check_all_used,
    edge_features,
    split_encoder_name,
)
from graphgps_spse.models.heads import ActivationOptions, build_activation, build_head
from graphgps_spse.models.layout import layout_of
from graphgps_spse.models.options import KernelOptions, TransformerOptions
from graphgps_spse.ops.dropout import draw_dropout_mask
from graphgps_spse.ops.grit_pairs import PairInput, PairStream, PairWeights, grit_pairs, prepare
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.options import Options, option
from graphgps_spse.registry import edge_encoders, models

Moments = Callable[[Tensor, Tensor, Any], tuple[Tensor, Tensor, Tensor]]
"""Mean [D], biased variance [D] and number of the rows of one process -> those of all."""


def _by_position(weight: Tensor, num_heads: int, parts: int = 1) -> Tensor:
    """Bring rows ordered (head, part, position in head) into the kernels' order (part, position in head, head)."""
    rows = weight.unflatten(0, (num_heads, parts, -1))
    return rows.permute(1, 2, 0, *range(3, rows.dim())).flatten(0, 2)


class GritOptions(Options, section="gt"):
    """Options of GRIT alone."""

    bn_momentum: float = option(0.1, "momentum of the running statistics of BatchNorm", at_least=0, at_most=1)
    clamp: float = option(
        5.0, "attention logits are clamped to [-clamp, clamp]; 0: not clamped", key="attn.clamp", at_least=0
    )


class PairNorm(nn.Module):
    """BatchNorm of pair features as the scale and shift that it amounts to, from column statistics already at hand."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, dim: int, *, momentum: float, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.moments: Moments | None = None

    def synchronise(self, moments: Moments) -> None:
        """From now on turn a batch's statistics into those that `moments` returns: of all processes of a run."""
        self.moments = moments

    def forward(self, mean_D: Tensor | None, var_D: Tensor | None, num_rows: int | Tensor) -> tuple[Tensor, Tensor]:
        """Return scale and shift: from the batch's mean and biased variance, or where None from the running ones."""
        if mean_D is None or var_D is None:
            mean_D, var_D = self.running_mean, self.running_var
        else:
            if self.moments is not None:
                mean_D, var_D, num_rows = self.moments(mean_D, var_D, num_rows)
            with torch.no_grad():
                self.running_mean.lerp_(mean_D, self.momentum)
                self.running_var.lerp_(var_D * (num_rows / (num_rows - 1)), self.momentum)
                self.num_batches_tracked += 1
        scale_D = self.weight * torch.rsqrt(var_D + self.eps)
        return scale_D, self.bias - mean_D * scale_D


class GritAttention(nn.Module):
    """The weights of one attention: s = (q_i + k_j) * w_ij, e^_ij = relu(signed root of s + b_ij), softmax over j.

    Shapes are the official code's: `pair` maps e to (head, w then b, position in head), `logit` is [D/H, H, 1] and
    `mix` [D/H, H, D/H]. `forward` brings columns into the kernels' order, (position in head, head).
    """

    def __init__(self, dim: int, num_heads: int, *, clamp: float, dropout: float, kernels: str = "auto") -> None:
        super().__init__()
        dim_head = dim // num_heads
        self.num_heads, self.clamp, self.dropout, self.kernels = num_heads, clamp, dropout, kernels
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.pair = nn.Linear(dim, 2 * dim)
        self.logit = nn.Parameter(torch.empty(dim_head, num_heads, 1))
        self.mix = nn.Parameter(torch.empty(dim_head, num_heads, dim_head))
        for weight in (self.query.weight, self.key.weight, self.value.weight, self.pair.weight, self.logit, self.mix):
            nn.init.xavier_normal_(weight)

    def forward(
        self,
        x_ND: Tensor,
        stream: PairStream,
        layout: PairLayout,
        out: nn.Linear | None,
        dropout: float,
        norm: PairNorm,
    ) -> tuple[Tensor, PairStream | None]:
        """Return what nodes receive, [N, D] by head, and the updated pairs: None where `out` is None."""
        dim, heads = x_ND.shape[1], self.num_heads
        maps = [_by_position(linear.weight, heads) for linear in (self.query, self.key, self.value)]
        bias = nn.functional.pad(_by_position(self.query.bias, heads), (0, 2 * dim))
        q_ND, k_ND, v_ND = nn.functional.linear(x_ND, torch.cat(maps), bias).chunk(3, dim=1)
        weights = PairWeights(
            map_WD=_by_position(self.pair.weight, heads, parts=2),
            map_bias_W=_by_position(self.pair.bias, heads, parts=2),
            logit_D=self.logit.flatten(),
            out_DD=None if out is None else _by_position(out.weight.t(), heads).t(),
            out_bias_D=None if out is None else out.bias,
        )
        given = PairInput(
            layout=layout,
            num_heads=heads,
            pairs=stream,
            q_ND=q_ND,
            k_ND=k_ND,
            v_ND=v_ND,
            weights=weights,
            clamp=self.clamp,
            attention_dropout_mask_PH=self._dropout_mask(layout.num_pairs, heads, self.dropout, x_ND),
            pair_dropout_mask_PD=None if out is None else self._dropout_mask(layout.num_pairs, dim, dropout, x_ND),
            with_statistics=out is not None and norm.training,
        )
        result = grit_pairs(given, kernels=self.kernels)
        value_NCH, pair_NCH = (sums.unflatten(1, (-1, heads)) for sums in (result.value_ND, result.pair_ND))
        x_ND = (value_NCH.transpose(1, 2) + torch.einsum("nch,chd->nhd", pair_NCH, self.mix)).flatten(1)
        if result.u_PD is None:
            return x_ND, None
        return x_ND, PairStream(result.u_PD, *norm(result.mean_D, result.var_D, layout.num_pairs))

    def prepare_kernels(self) -> None:
        """Compile the kernels for the device of the weights. Raises ConfigError where there are none to be had."""
        prepare(self.query.weight, self.num_heads, kernels=self.kernels)

    def _dropout_mask(self, rows: int, columns: int, rate: float, like: Tensor) -> Tensor | None:
        return draw_dropout_mask(rows, columns, rate, like) if self.training and rate else None


class GritLayer(nn.Module):
    """Attention, degree scaler and feed-forward on nodes; a linear update on pairs."""

    def __init__(
        self,
        dim: int,
        *,
        attention: GritAttention,
        dropout: float,
        bn_momentum: float,
        activation: str,
        update_pairs: bool,
    ) -> None:
        super().__init__()
        self.update_pairs, self.dropout, self.attention = update_pairs, dropout, attention
        self.degree = nn.Parameter(torch.empty(1, dim, 2))
        nn.init.xavier_normal_(self.degree)
        self.out_node = nn.Linear(dim, dim)
        self.out_pair = nn.Linear(dim, dim)
        self.norm_node = nn.BatchNorm1d(dim, momentum=bn_momentum)
        self.norm_pair = PairNorm(dim, momentum=bn_momentum)
        self.ffn = nn.Sequential(
            nn.Linear(dim, 2 * dim), build_activation(activation), nn.Dropout(dropout), nn.Linear(2 * dim, dim)
        )
        self.norm_ffn = nn.BatchNorm1d(dim, momentum=bn_momentum)

    def forward(
        self, x_ND: Tensor, stream: PairStream, layout: PairLayout, log_deg_N: Tensor
    ) -> tuple[Tensor, PairStream | None]:
        """Return the next node and pair features; None for pairs in the last layer, whose update nothing reads."""
        out = self.out_pair if self.update_pairs else None
        o_ND, stream_out = self.attention(x_ND, stream, layout, out, self.dropout, self.norm_pair)
        o_ND = nn.functional.dropout(o_ND, self.dropout, self.training)
        o_ND = o_ND * torch.addcmul(self.degree[0, :, 0], log_deg_N.unsqueeze(1), self.degree[0, :, 1])
        x_ND = self.norm_node(x_ND + self.out_node(o_ND))
        return self.norm_ffn(x_ND + self.ffn(x_ND)), stream_out


@models.register("GritTransformer")
class GritTransformer(nn.Module):
    """GRIT on packed pairs: a linear map of the channels of all pair encodings that are enabled, side by side."""

    def __init__(
        self,
        *,
        node_encoder: NodeEncoder,
        edge_encoder: nn.Module,
        encodings: Sequence[Encoding],
        node_encoding: nn.Module | None,
        pair_encoding: nn.Module,
        layers: nn.ModuleList,
        head: nn.Module,
    ) -> None:
        """`node_encoding` and `pair_encoding` map the parts of `encodings`; the result is added to raw features."""
        super().__init__()
        self.node_encoder, self.edge_encoder = node_encoder, edge_encoder
        self.pair_channels = PairChannels(encodings, identity=True)
        self.node_parts = [encoding.name for encoding in encodings if encoding.dim_node]
        self.node_encoding, self.pair_encoding = node_encoding, pair_encoding
        self.layers, self.head = layers, head

    @classmethod
    def from_cfg(cls, cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim_out: int) -> "GritTransformer":
        """Read `gt`, `gnn` and the encoders' names. Raises ConfigError where no encoding is of pairs."""
        of_pairs = [encoding for encoding in encodings if encoding.dim_pair > 0]
        if not of_pairs:
            raise ConfigError(
                "GritTransformer reads encodings of node pairs, and none is enabled; set posenc_RRWP.enable=True, "
                "posenc_SPSE.enable=True or both"
            )
        edge_name, edge_encodings = split_encoder_name(cfg.dataset.edge_encoder_name, "edge")
        if edge_encodings:
            raise ConfigError(
                f"dataset.edge_encoder_name: GritTransformer reads every encoding of pairs that is enabled; write "
                f"{edge_name} in place of {cfg.dataset.edge_encoder_name}"
            )
        dim, names = TransformerOptions.from_cfg(cfg).dim_hidden, [encoding.name for encoding in of_pairs]
        node_names = cfg.dataset.node_encoder_name.split("+")
        check_all_used(encodings, node_names=[*node_names, *names], pair_names=names)
        dim_node = sum(encoding.dim_node for encoding in of_pairs)
        return cls(
            node_encoder=build_node_encoder(cfg, spec, encodings, dim),
            edge_encoder=edge_encoders.get(edge_name).from_spec(spec.edge_input, dim),
            head=build_head(cfg, spec, dim, dim_out),
            encodings=of_pairs,
            node_encoding=_xavier_linear(dim_node, dim) if dim_node else None,
            pair_encoding=_pair_encoding(of_pairs, dim),
            layers=build_grit_layers(cfg),
        )

    @property
    def values_kept_of_pair(self) -> int:
        """Values that training keeps of each node pair at least: in every layer its features, and two of each head."""
        layers = [layer for layer in self.layers if isinstance(layer, GritLayer)]
        return sum(layer.out_pair.in_features + 2 * layer.attention.num_heads for layer in layers)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [B, dim_out] or [N, dim_out], in the order of the batch."""
        layout = layout_of(batch, training=self.training)
        x_ND, stream = self.encode(batch, layout)
        log_deg_N = batch.log_deg_N.to(x_ND.dtype)
        for layer in self.layers:
            x_ND, stream = layer(x_ND, stream, layout, log_deg_N)
        return self.head(x_ND, layout)

    def encode(self, batch: GraphBatch, layout: PairLayout) -> tuple[Tensor, PairStream]:
        """Return the features that enter the first layer: raw ones plus the encodings, of nodes and of pairs."""
        x_ND = self.node_encoder(batch)
        if self.node_encoding is not None:
            parts = [batch.node[name] for name in self.node_parts]
            x_ND = x_ND + self.node_encoding(parts[0] if len(parts) == 1 else torch.cat(parts, dim=1))
        rows_E = layout.reverse_edge_rows(batch.edge_index_2E)  # as published: the receiver of an edge is the query
        e_PD = self.pair_encoding(self.pair_channels(batch.pair))
        return x_ND, PairStream(e_PD.index_add(0, rows_E, self.edge_encoder(edge_features(batch)).to(e_PD.dtype)))


def build_grit_layers(cfg: Any) -> nn.ModuleList:
    """Return the layers that `gt` and `gnn.act` describe; raises ConfigError for widths that do not fit."""
    options, grit, kernels = TransformerOptions.from_cfg(cfg), GritOptions.from_cfg(cfg), KernelOptions.from_cfg(cfg)
    dim, clamp, activation = options.dim_hidden, grit.clamp or math.inf, ActivationOptions.from_cfg(cfg).act
    return nn.ModuleList(
        GritLayer(
            dim,
            attention=GritAttention(
                dim, options.n_heads, clamp=clamp, dropout=options.attn_dropout, kernels=kernels.kernels
            ),
            dropout=options.dropout,
            bn_momentum=grit.bn_momentum,
            activation=activation,
            update_pairs=index < options.layers - 1,
        )
        for index in range(options.layers)
    )


def _pair_encoding(encodings: Sequence[Encoding], dim: int) -> nn.Module:
    """Return the map of the channels of pairs: a vector for each category where there is one encoding of categories."""
    if len(encodings) == 1 and encodings[0].pair_categories:
        return PairEmbedding(encodings[0], dim)
    return _xavier_linear(PairChannels(encodings, identity=True).number, dim)


def _xavier_linear(num_channels: int, dim: int) -> nn.Linear:
    linear = nn.Linear(num_channels, dim, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear
