import torch

from graphgps_spse.models.modules.message_passing import GINE, GatedGCN
from graphgps_spse.ops.edge_layout import EdgeLayout

# 2 -> 0, 0 -> 1, 2 -> 1, 1 -> 2 and 2 -> 1 once more; node 3 has no edges
EDGES = torch.tensor([[2, 0, 2, 1, 2], [0, 1, 1, 2, 1]])


def test_gine_by_hand():
    """The identity as MLP: node 1 gets its own value, and ReLU(x + e) of the edges that end there."""
    gine = GINE(1, activation="relu", dropout=0.0)
    for linear in (gine.mlp[0], gine.mlp[2]):
        linear.weight.data.fill_(1)
        linear.bias.data.fill_(0)
    edges = EdgeLayout(EDGES, num_nodes=4)
    x_ND = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    e_ED = torch.tensor([[1.0], [2.0], [3.0], [-50.0], [-500.0]])[edges.order_E]
    out, after = gine(x_ND, e_ED, edges)
    messages = [[101], [1 + 2, 100 + 3, 0], [0], []]
    expected = [x + x + sum(m) for x, m in zip([1, 10, 100, 1000], messages)]
    assert out[:, 0].tolist() == expected
    assert after is e_ED


def test_gated_gcn_by_hand():
    """Zero maps but `carried`: every gate is a half, so a node receives the mean, half / (half of the count + 1e-6)."""
    layer = GatedGCN(1, activation="relu", dropout=0.0, update_edges=True).double().eval()
    for linear in (layer.own, layer.carried, layer.edge, layer.receiver, layer.sender):
        linear.weight.data.fill_(0)
        linear.bias.data.fill_(0)
    layer.carried.weight.data.fill_(1)
    layer.norm_edge.bias.data.fill_(7)
    edges = EdgeLayout(EDGES, num_nodes=4)
    x_ND = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.float64)
    out, e_ED = layer(x_ND, torch.zeros(5, 1, dtype=torch.float64), edges)
    received = [50 / (0.5 + 1e-6), 100.5 / (1.5 + 1e-6), 5 / (0.5 + 1e-6), 0]
    expected = [x + r / (1 + 1e-5) ** 0.5 for x, r in zip([1, 10, 100, 1000], received)]
    torch.testing.assert_close(out[:, 0], torch.tensor(expected, dtype=torch.float64))
    assert e_ED.tolist() == [[7]] * 5


def test_the_last_layer_leaves_edges_alone():
    layer, edges = GatedGCN(2, activation="relu", dropout=0.0, update_edges=False).train(), EdgeLayout(EDGES, 4)
    e_ED = torch.randn(5, 2)
    _, after = layer(torch.randn(4, 2), e_ED, edges)
    assert after is e_ED and layer.norm_edge.num_batches_tracked == 0
