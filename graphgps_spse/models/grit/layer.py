"""A layer of GRIT: attention and a linear update of pairs, then a feed-forward network on nodes."""

import torch
from torch import Tensor, nn

from graphgps_spse.models.grit.attention import GritAttention, LayerWeights
from graphgps_spse.models.grit.pair_norm import PairNorm
from graphgps_spse.models.modules.activations import build_activation
from graphgps_spse.models.modules.linear import RowLinear
from graphgps_spse.ops.grit_pairs import PairStream
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.ops.row_linear import row_linear


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
            RowLinear(dim, 2 * dim), build_activation(activation), nn.Dropout(dropout), RowLinear(2 * dim, dim)
        )
        self.norm_ffn = nn.BatchNorm1d(dim, momentum=bn_momentum)

    def forward(
        self,
        x_ND: Tensor,
        stream: PairStream,
        layout: PairLayout,
        log_deg_N: Tensor,
        weights: LayerWeights,
        attention: list[Tensor] | None = None,
    ) -> tuple[Tensor, PairStream | None]:
        """Return the next node and pair features; None for pairs in the last layer, whose update nothing reads.

        `weights` are those of `weights_of`. Attention weights are appended to `attention`.
        """
        o_ND, stream_out = self.attention(x_ND, stream, layout, weights, self.dropout, self.norm_pair, attention)
        o_ND = nn.functional.dropout(o_ND, self.dropout, self.training)
        own_D, by_degree_D = weights.degree_D2.unbind(1)
        o_ND = o_ND * torch.addcmul(own_D, log_deg_N.unsqueeze(1), by_degree_D)
        x_ND = self.norm_node(x_ND + row_linear(o_ND, weights.out_node_DD, self.out_node.bias))
        return self.norm_ffn(x_ND + self.ffn(x_ND)), stream_out
