import pytest
import torch

from graphgps_spse.models.local import GINE, EdgeLayout, GatedGCN

# 2 -> 0, 0 -> 1, 2 -> 1, 1 -> 2 and 2 -> 1 once more; node 3 has no edges
EDGES = torch.tensor([[2, 0, 2, 1, 2], [0, 1, 1, 2, 1]])


def test_sums_and_gathers_by_hand():
    edges = EdgeLayout(EDGES, num_nodes=4)
    assert EDGES[1, edges.order_E].tolist() == [0, 1, 1, 1, 2]
    x_ND = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    assert edges.at_senders(x_ND)[:, 0].tolist() == [100, 1, 100, 100, 10]
    assert edges.at_receivers(x_ND)[:, 0].tolist() == [1, 10, 10, 10, 100]
    assert edges.sum_senders(edges.at_senders(x_ND))[:, 0].tolist() == [100, 201, 10, 0]


def test_a_layout_needs_no_value_of_an_edge():
    """So a GPU is not waited for, whose queue is full when a batch begins: tensors of shapes without values will do."""
    with torch.device("meta"):
        edges = EdgeLayout(torch.empty(2, 5, dtype=torch.int64), num_nodes=4)
        assert edges.sum_senders(edges.at_senders(torch.empty(4, 3))).shape == (4, 3)


def test_no_edges_at_all():
    edges = EdgeLayout(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    x_ND = torch.ones(3, 2, requires_grad=True)
    out = edges.sum_senders(edges.at_senders(x_ND) + edges.at_receivers(x_ND))
    assert out.tolist() == [[0, 0]] * 3
    out.sum().backward()
    assert x_ND.grad.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("name", ["at_senders", "at_receivers"])
def test_gradients_on_nodes(name):
    edges, x_ND = EdgeLayout(EDGES, num_nodes=4), torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(edges, name), [x_ND])


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
