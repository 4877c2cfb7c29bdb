"""What PPGT's attention reads of a pair: its encodings, degrees, graph and edge, mapped once for all layers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.models.modules.activations import build_activation
from graphgps_spse.models.modules.edge_encoder import edge_features
from graphgps_spse.models.modules.pair_encoder import PairChannels
from graphgps_spse.models.ppgt.norm import AdaptiveRMSNorm
from graphgps_spse.ops.pair_layout import PairLayout


class PairStem(nn.Module):
    """e_ij = norm(FFN blocks(MLP(z_ij, sin and cos of z_ij) + edge features)).

    z_ij holds the channels of the encodings, 1 / n of the graph and 1 / degree of i and of j; the sines and cosines are
    those of 2^l pi z for l < `num_frequencies`.
    """

    def __init__(
        self,
        encodings: Sequence[Encoding],
        dim: int,
        *,
        edge_encoder: nn.Module,
        dim_mlp: int,
        num_frequencies: int,
        num_blocks: int,
        activation: str,
    ) -> None:
        super().__init__()
        self.channels, self.edge_encoder = PairChannels(encodings, identity=True), edge_encoder
        self.frequencies = [math.pi * 2**power for power in range(num_frequencies)]
        dim_in = (self.channels.number + 3) * (1 + 2 * num_frequencies)
        self.mlp = nn.Sequential(nn.Linear(dim_in, dim_mlp), build_activation(activation), nn.Linear(dim_mlp, dim))
        self.norms = nn.ModuleList(AdaptiveRMSNorm(dim) for _ in range(num_blocks))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), build_activation(activation), nn.Linear(2 * dim, dim))
            for _ in range(num_blocks)
        )
        self.norm_out = AdaptiveRMSNorm(dim)

    def forward(self, batch: GraphBatch, layout: PairLayout) -> Tensor:
        """Return [P, dim]. The features of edge u -> v enter row (v, u), whose query is the receiver, as in GRIT."""
        edge_ED = self.edge_encoder(edge_features(batch))
        e_PD = self.mlp(self._inputs(batch, layout, edge_ED.dtype))
        e_PD = e_PD.index_add(0, layout.reverse_edge_rows(batch.edge_index_2E), edge_ED.to(e_PD.dtype))
        for norm, block in zip(self.norms, self.blocks):
            e_PD = e_PD + block(norm(e_PD))
        return self.norm_out(e_PD)

    def _inputs(self, batch: GraphBatch, layout: PairLayout, dtype: torch.dtype) -> Tensor:
        inverse_N1 = inverse_degree(batch).to(dtype).unsqueeze(1)
        share_B1 = layout.sizes_B.to(dtype).reciprocal().unsqueeze(1)
        at_query_P2 = layout.at_queries(torch.cat([layout.at_nodes(share_B1), inverse_N1], dim=1))
        parts = [self.channels(batch.pair).to(dtype)] if self.channels.number else []
        z_PC = torch.cat([*parts, at_query_P2, layout.at_keys(inverse_N1)], dim=1)
        angles = [frequency * z_PC for frequency in self.frequencies]
        return torch.cat([z_PC, *(wave for a in angles for wave in (a.sin(), a.cos()))], dim=1) if angles else z_PC


def inverse_degree(batch: GraphBatch) -> Tensor:
    """Return 1 / out-degree of each node, [N]; 0 for a node without edges."""
    degree_N = batch.log_deg_N.expm1().round()
    return torch.where(degree_N > 0, degree_N.reciprocal(), 0.0)
