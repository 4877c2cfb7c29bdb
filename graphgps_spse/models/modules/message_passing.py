"""Message passing along edges: GINE and the gated graph convolution."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphgps_spse.models.modules.activations import build_activation
from graphgps_spse.ops.edge_layout import EdgeLayout


class GINE(nn.Module):
    """x_i + Drop(MLP(x_i + sum_j ReLU(x_j + e_ji))) over the edges j -> i (Hu et al. 2020); e does not change."""

    def __init__(self, dim: int, *, activation: str, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.mlp = nn.Sequential(nn.Linear(dim, dim), build_activation(activation), nn.Linear(dim, dim))

    def forward(self, x_ND: Tensor, e_ED: Tensor, edges: EdgeLayout) -> tuple[Tensor, Tensor]:
        """Return the next node features, and the edge features as given."""
        message_ED = F.relu(edges.at_senders(x_ND) + e_ED)
        update_ND = self.mlp(x_ND + edges.sum_at_receivers(message_ED).to(x_ND.dtype))
        return x_ND + F.dropout(update_ND, self.dropout, self.training), e_ED


class GatedGCN(nn.Module):
    """The residual gated graph convolution (Bresson and Laurent 2018), with learned gates on the edges.

    g_ji = D x_i + E x_j + C e_ji; x'_i = x_i + Drop(act(BN(A x_i + sum_j s(g_ji) B x_j / (sum_j s(g_ji) + 1e-6)))), s
    the sigmoid; e'_ji = e_ji + Drop(act(BN(g_ji))). The BN of a training batch's only edge is the bias.
    """

    def __init__(self, dim: int, *, activation: str, dropout: float, update_edges: bool) -> None:
        """Without `update_edges`, as in a last layer, e does not change. Its norm exists but is unused."""
        super().__init__()
        self.dropout, self.update_edges = dropout, update_edges
        self.own, self.carried, self.edge, self.receiver, self.sender = (nn.Linear(dim, dim) for _ in range(5))
        self.norm_node, self.norm_edge = nn.BatchNorm1d(dim), nn.BatchNorm1d(dim)
        self.activation = build_activation(activation)

    def forward(self, x_ND: Tensor, e_ED: Tensor, edges: EdgeLayout) -> tuple[Tensor, Tensor]:
        """Return the next node and edge features."""
        gate_ED = edges.at_receivers(self.receiver(x_ND)) + edges.at_senders(self.sender(x_ND)) + self.edge(e_ED)
        open_ED = gate_ED.sigmoid()
        carried_ND = edges.sum_at_receivers(open_ED * edges.at_senders(self.carried(x_ND)))
        carried_ND = (carried_ND / (edges.sum_at_receivers(open_ED) + 1e-6)).to(x_ND.dtype)
        update_ND = self.activation(self.norm_node(self.own(x_ND) + carried_ND))
        x_ND = x_ND + F.dropout(update_ND, self.dropout, self.training)
        if not self.update_edges:
            return x_ND, e_ED
        one_process = type(self.norm_edge) is nn.BatchNorm1d  # else the others wait for this one's statistics
        if one_process and not len(e_ED):
            return x_ND, e_ED
        if one_process and self.training and len(e_ED) == 1:  # torch refuses a single row
            norm_ED = torch.addcmul(self.norm_edge.bias, torch.zeros_like(gate_ED), self.norm_edge.weight)
        else:
            norm_ED = self.norm_edge(gate_ED)
        return x_ND, e_ED + F.dropout(self.activation(norm_ED), self.dropout, self.training)
