"""The attention of GraphGPS's SAN2Layer: one softmax over edges, another over the other pairs of a graph.

For receiver i and each head, with C columns,

    y_i = (sum_j s_ji v_j + g sum_j t_ji v_j) / (1 + g)
    s_ji = softmax over the edges j -> i of sum_c q_ic k_jc e_jic / sqrt(C)
    t_ji = softmax over the other j, except i itself, of sum_c q'_ic k'_jc e'_c / sqrt(C)

g is learned, from 0.5. Without the full graph, y_i = sum_j s_ji v_j. A softmax over nothing is 0.
"""

import torch
from torch import Tensor, nn

from graphgps_spse.models.san.attention import OtherPairs, SpectralAttention
from graphgps_spse.ops.edge_layout import EdgeLayout

EPS = 1e-16


class SeparateAttention(SpectralAttention):
    """The equations of this file, with the maps of SAN's attention."""

    def __init__(self, dim: int, num_heads: int, *, full_graph: bool) -> None:
        super().__init__(dim, num_heads, gamma=0.0, full_graph=full_graph)
        self.share_of_others = nn.Parameter(torch.tensor(0.5)) if full_graph else None

    def forward(
        self, x_ND: Tensor, e_ED: Tensor, edges: EdgeLayout, other_1D: Tensor | None, others: OtherPairs | None
    ) -> Tensor:
        """Return [N, D]; `other_1D` and `others` are for the full graph."""
        value_ND, width = self.value(x_ND), x_ND.shape[1] // self.num_heads
        weight_EH = edges.exp_at_receivers(self.edge_logits(x_ND, e_ED, edges))
        carried_ED = edges.at_senders(value_ND) * weight_EH.repeat_interleave(width, dim=1)
        total_N = (edges.sum_at_receivers(weight_EH) + EPS).repeat_interleave(width, dim=1)
        along_ND = (edges.sum_at_receivers(carried_ED) / total_N).to(x_ND.dtype)
        if self.share_of_others is None or other_1D is None or others is None:
            return along_ND
        more_ND = self._among_others(x_ND, value_ND, other_1D, others)
        return (along_ND + self.share_of_others * more_ND) / (1 + self.share_of_others)

    def _among_others(self, x_ND: Tensor, value_ND: Tensor, other_1D: Tensor, others: OtherPairs) -> Tensor:
        """Return sum_j t_ji v_j, [N, D]."""
        to_query, to_key, to_edge = self.others
        width = x_ND.shape[1] // self.num_heads
        qkv_NW = torch.cat([to_query(x_ND) * to_edge(other_1D) * width**-0.5, to_key(x_ND), value_ND], dim=1)
        means = []
        for (q, k, v, _), mask in zip(others.blocks.heads(qkv_NW, self.num_heads), others.masks):
            logit = (q @ k.transpose(2, 3)).masked_fill(mask == 0, torch.finfo(q.dtype).min)
            weight = (logit - logit.amax(3, keepdim=True).detach()).exp() * mask
            means.append((weight @ v) / (weight.sum(3, keepdim=True) + EPS))
        return others.blocks.merge_heads(means)
