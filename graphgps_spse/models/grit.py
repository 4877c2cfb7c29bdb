"""GRIT, the graph transformer of Ma et al. (2023), whose attention reads and updates a feature of every node pair.

Receiver i, sender j. Each layer keeps a residual stream of nodes x [N, D] and one of pairs e [P, D], normalised
after each update. The pair work is in grit_attention.py.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphgps_spse.data.base import DatasetSpec, GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.grit_attention import PairOptions, PairStream, PairWeights, pair_layer
from graphgps_spse.models.heads import build_activation
from graphgps_spse.models.pairs import PairLayout
from graphgps_spse.registry import edge_encoders, heads, models, node_encoders


class PairNorm(nn.BatchNorm1d):
    """BatchNorm of pair features from given column statistics, as the scale and shift it amounts to."""

    def scale_and_shift(self, mean_D: Tensor | None, var_D: Tensor | None, num_rows: int) -> tuple[Tensor, Tensor]:
        """Return scale and shift; in training from the batch's mean and biased variance, which running ones follow."""
        if not self.training:
            mean_D, var_D = self.running_mean, self.running_var
        elif num_rows < 2:
            raise ValueError("BatchNorm in training needs more than one pair, but the batch is a single node")
        else:
            with torch.no_grad():
                self.running_mean.lerp_(mean_D.to(self.running_mean.dtype), self.momentum)
                self.running_var.lerp_((var_D * (num_rows / (num_rows - 1))).to(self.running_var.dtype), self.momentum)
                self.num_batches_tracked += 1
        scale_D = self.weight * torch.rsqrt(var_D + self.eps)
        return scale_D, self.bias - mean_D * scale_D


class GritAttention(nn.Module):
    """The weights of one attention: s = (q_i + k_j) * w_ij, e^_ij = relu(signed root of s + b_ij), softmax over j.

    Shapes are the official code's: `pair` maps e to (head, w then b, position in head), `logit` is [D/H, H, 1] and
    `mix` [D/H, H, D/H]. `forward` brings columns into the kernels' order, (position in head, head).
    """

    def __init__(self, dim: int, num_heads: int, *, clamp: float, dropout: float) -> None:
        super().__init__()
        dim_head = dim // num_heads
        self.num_heads, self.clamp, self.dropout = num_heads, clamp, dropout
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.pair = nn.Linear(dim, 2 * dim)
        self.logit = nn.Parameter(torch.empty(dim_head, num_heads, 1))
        self.mix = nn.Parameter(torch.empty(dim_head, num_heads, dim_head))
        for weight in (self.query.weight, self.key.weight, self.value.weight, self.pair.weight, self.logit, self.mix):
            nn.init.xavier_normal_(weight)

    def forward(
        self, x_ND: Tensor, stream: PairStream, layout: PairLayout, out: nn.Linear | None, dropout: float, norm: PairNorm
    ) -> tuple[Tensor, PairStream | None]:
        """Return what nodes receive, [N, D] by head, and the updated pairs: None where `out` is None."""
        dim, heads = x_ND.shape[1], self.num_heads
        columns = torch.arange(dim, device=x_ND.device).view(heads, -1).t().reshape(-1)
        weight = torch.cat([self.query.weight[columns], self.key.weight[columns], self.value.weight[columns]])
        bias = torch.cat([self.query.bias[columns], self.query.bias.new_zeros(2 * dim)])
        q_ND, k_ND, v_ND = nn.functional.linear(x_ND, weight, bias).chunk(3, dim=1)
        rows = self._pair_rows(columns)
        weights = PairWeights(
            map_WD=self.pair.weight[rows],
            map_bias_W=self.pair.bias[rows],
            logit_D=self.logit.reshape(-1),
            out_DD=None if out is None else out.weight[:, columns],
            out_bias_D=None if out is None else out.bias,
        )
        dtype = q_ND.dtype
        options = PairOptions(
            layout=layout,
            num_heads=heads,
            clamp=self.clamp,
            keep_PH=self._keep(layout.num_pairs, heads, self.dropout, x_ND),
            keep_PD=None if out is None else self._keep(layout.num_pairs, dim, dropout, x_ND),
            statistics=out is not None and norm.training,
        )
        result = pair_layer(stream, q_ND, k_ND, v_ND, weights, options)
        mixed_NHC = torch.einsum("nch,chd->nhd", result.pair_ND.view(-1, dim // heads, heads).to(dtype), self.mix)
        value_NHC = result.value_ND.view(-1, dim // heads, heads).transpose(1, 2)
        x_ND = (value_NHC + mixed_NHC).reshape(-1, dim)
        if result.u_PD is None:
            return x_ND, None
        return x_ND, PairStream(result.u_PD, *norm.scale_and_shift(result.mean_D, result.var_D, layout.num_pairs))

    def _pair_rows(self, columns_D: Tensor) -> Tensor:
        """Rows of `pair` that give w, then b, in the kernels' order."""
        dim_head = len(columns_D) // self.num_heads
        w_D = columns_D + torch.div(columns_D, dim_head, rounding_mode="floor") * dim_head
        return torch.cat([w_D, w_D + dim_head])

    def _keep(self, rows: int, columns: int, rate: float, like: Tensor) -> Tensor | None:
        """Draw a dropout mask from torch's generator, scaled to keep the mean; None where nothing is dropped."""
        if not self.training or rate == 0:
            return None
        return like.new_empty(rows, columns).bernoulli_(1 - rate).div_(1 - rate)


class GritLayer(nn.Module):
    """Attention, degree scaler and feed-forward on nodes; a linear update on pairs."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        clamp: float,
        dropout: float,
        attn_dropout: float,
        bn_momentum: float,
        activation: str,
        update_pairs: bool,
    ) -> None:
        super().__init__()
        self.update_pairs, self.dropout = update_pairs, dropout
        self.attention = GritAttention(dim, num_heads, clamp=clamp, dropout=attn_dropout)
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
    """GRIT on packed pairs, for one encoding of all pairs (RRWP, or SPSE, whose node part is the random walk's)."""

    def __init__(
        self,
        *,
        node_encoder: nn.Module,
        edge_encoder: nn.Module,
        head: nn.Module,
        encoding: str,
        dim_pair: int,
        dim_node: int,
        dim: int,
        num_layers: int,
        num_heads: int,
        clamp: float,
        dropout: float,
        attn_dropout: float,
        bn_momentum: float,
        activation: str,
    ) -> None:
        super().__init__()
        if dim % num_heads:
            raise ConfigError(f"gt.dim_hidden={dim} must be a multiple of gt.n_heads={num_heads}")
        self.encoding = encoding
        self.node_encoder, self.edge_encoder = node_encoder, edge_encoder
        self.node_encoding = nn.Linear(dim_node, dim, bias=False) if dim_node else None
        self.pair_encoding = nn.Linear(dim_pair, dim, bias=False)
        for linear in (self.node_encoding, self.pair_encoding):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
        self.layers = nn.ModuleList(
            GritLayer(
                dim,
                num_heads,
                clamp=clamp,
                dropout=dropout,
                attn_dropout=attn_dropout,
                bn_momentum=bn_momentum,
                activation=activation,
                update_pairs=index < num_layers - 1,
            )
            for index in range(num_layers)
        )
        self.head = head

    @classmethod
    def from_cfg(
        cls, cfg: Any, spec: DatasetSpec, encodings: Sequence[Encoding], dim_out: int
    ) -> "GritTransformer":
        """Read `gt`, `gnn` and the encoders' names. Raises ConfigError unless exactly one encoding is of pairs."""
        of_pairs = [encoding for encoding in encodings if encoding.dim_pair > 0]
        if len(of_pairs) != 1:
            names = ", ".join(encoding.name for encoding in of_pairs) or "none"
            raise ConfigError(
                f"GritTransformer reads exactly one encoding of node pairs, but this config enables {names}; "
                "enable one of posenc_RRWP and posenc_SPSE"
            )
        dim, encoding = cfg.gt.dim_hidden, of_pairs[0]
        if cfg.gnn.dim_inner != dim:
            raise ConfigError(f"gnn.dim_inner={cfg.gnn.dim_inner} must equal gt.dim_hidden={dim}")
        return cls(
            node_encoder=node_encoders.get(cfg.dataset.node_encoder_name).from_spec(spec.node_input, dim),
            edge_encoder=edge_encoders.get(cfg.dataset.edge_encoder_name).from_spec(spec.edge_input, dim),
            head=heads.get(cfg.gnn.head).from_cfg(cfg, dim, dim_out),
            encoding=encoding.name,
            dim_pair=encoding.dim_pair,
            dim_node=encoding.dim_node,
            dim=dim,
            num_layers=cfg.gt.layers,
            num_heads=cfg.gt.n_heads,
            clamp=cfg.gt.attn.clamp,
            dropout=cfg.gt.dropout,
            attn_dropout=cfg.gt.attn_dropout,
            bn_momentum=cfg.gt.bn_momentum,
            activation=cfg.gnn.act,
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return [B, dim_out] or [N, dim_out], in the order of the batch."""
        layout = PairLayout(batch.sizes, batch.x_NF.device)
        x_ND, stream = self.encode(batch, layout)
        log_deg_N = batch.log_deg_N.to(x_ND.dtype)
        for layer in self.layers:
            x_ND, stream = layer(x_ND, stream, layout, log_deg_N)
        return self.head(x_ND, layout)

    def encode(self, batch: GraphBatch, layout: PairLayout) -> tuple[Tensor, PairStream]:
        """Return the features that enter the first layer: raw ones plus the encoding, of nodes and of pairs."""
        x_ND = self.node_encoder(batch.x_NF)
        if self.node_encoding is not None:
            x_ND = x_ND + self.node_encoding(batch.node[self.encoding])
        edge_EF = batch.edge_attr_EF
        edge_EF = batch.x_NF.new_empty(batch.edge_index_2E.shape[1], 0) if edge_EF is None else edge_EF
        rows_E = layout.edge_rows(batch.edge_index_2E)
        e_PD = self.pair_encoding(batch.pair[self.encoding])
        return x_ND, PairStream(e_PD.index_add(0, rows_E, self.edge_encoder(edge_EF).to(e_PD.dtype)))
