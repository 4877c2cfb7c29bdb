import pytest
import torch

from graphgps_spse.ops.edge_layout import EdgeLayout

# 2 -> 0, 0 -> 1, 2 -> 1, 1 -> 2 and 2 -> 1 once more; node 3 has no edges
EDGES = torch.tensor([[2, 0, 2, 1, 2], [0, 1, 1, 2, 1]])


def test_sums_and_gathers_by_hand():
    edges = EdgeLayout(EDGES, num_nodes=4)
    assert EDGES[1, edges.order_E].tolist() == [0, 1, 1, 1, 2]
    x_ND = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    assert edges.at_senders(x_ND)[:, 0].tolist() == [100, 1, 100, 100, 10]
    assert edges.at_receivers(x_ND)[:, 0].tolist() == [1, 10, 10, 10, 100]
    assert edges.sum_at_receivers(edges.at_senders(x_ND))[:, 0].tolist() == [100, 201, 10, 0]


def test_a_layout_needs_no_value_of_an_edge():
    """So a GPU is not waited for, whose queue is full when a batch begins: tensors of shapes without values will do."""
    with torch.device("meta"):
        edges = EdgeLayout(torch.empty(2, 5, dtype=torch.int64), num_nodes=4)
        assert edges.sum_at_receivers(edges.at_senders(torch.empty(4, 3))).shape == (4, 3)


def test_no_edges_at_all():
    edges = EdgeLayout(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    x_ND = torch.ones(3, 2, requires_grad=True)
    out = edges.sum_at_receivers(edges.at_senders(x_ND) + edges.at_receivers(x_ND))
    assert out.tolist() == [[0, 0]] * 3
    out.sum().backward()
    assert x_ND.grad.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("name", ["at_senders", "at_receivers"])
def test_gradients_on_nodes(name):
    edges, x_ND = EdgeLayout(EDGES, num_nodes=4), torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(edges, name), [x_ND])
