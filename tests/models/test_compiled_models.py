"""torch.compile makes one graph of all layers of a model: the number of its graphs does not grow with the layers."""

from functools import cached_property

import pytest
import torch
from model_graphs import ENCODINGS, SPEC, random_graphs
from small_configs import csa_config, gnn_config, gps_config, grit_config, ppgt_config
from triton_interpreter import need_interpreter

from graphgps_spse.models.build import build_model, prepare_kernels
from graphgps_spse.ops import dispatch
from graphgps_spse.ops.pair_layout import PairLayout

CASES = {
    "GRIT": (grit_config, ["RRWP"]),
    "GPS": (gps_config, ["RWSE"]),
    "CSA": (lambda **gt: csa_config("SPSE", **gt), ["RWSE", "SPSE"]),
    "PPGT": (ppgt_config, ["RRWP"]),
    "GCN": (lambda layers: gnn_config("GCN", layers=layers), ["RWSE"]),
    "GAT": (lambda layers: gnn_config("GAT", layers=layers), ["RWSE", "SPD"]),
}


def compiled(name: str, layers: int, *, dynamic: bool):
    """Return a model with dropout, the same model compiled, and a list that grows with each graph that runs."""
    config, names = CASES[name]
    model = build_model(config(layers=layers), SPEC, [ENCODINGS[n] for n in names], 1).double()
    prepare_kernels(model)
    ran = []

    def backend(graph, examples):
        def run(*args):
            ran.append(graph)
            return graph(*args)

        return run

    torch._dynamo.reset()
    return model, torch.compile(model, backend=backend, dynamic=dynamic), ran


def batch_of(sizes: tuple[int, ...]):
    """Return a batch of graphs of these sizes."""
    return random_graphs(sizes).batch(range(len(sizes)))


def count_graphs(name: str, layers: int, *, dynamic: bool) -> int:
    """Return the number of graphs of a forward pass in training."""
    _, model, ran = compiled(name, layers, dynamic=dynamic)
    model.train()(batch_of((5, 6)))
    return len(ran)


@pytest.mark.parametrize(
    ("name", "device", "dynamic"),
    [
        ("GPS", "cuda", False),
        *(pytest.param(name, device, True, marks=pytest.mark.long) for name in CASES for device in ("cuda", "cpu")),
    ],
)
def test_the_number_of_graphs_does_not_grow_with_the_layers(name, device, dynamic, monkeypatch):
    """With kernels of GPUs, which Triton's interpreter runs, and with PyTorch alone."""
    if device == "cuda":
        need_interpreter()
        monkeypatch.setattr(dispatch, "_device_of", lambda like: "cuda")
    few, many = (count_graphs(name, layers, dynamic=dynamic) for layers in (2, 4))
    assert 1 <= few == many <= 3
    if dynamic:
        model, fast, ran = compiled(name, 2, dynamic=True)
        model.eval()
        for sizes in ((5, 6), (4, 9, 2)):
            torch.testing.assert_close(fast(batch_of(sizes)), model(batch_of(sizes)), rtol=1e-10, atol=1e-12)
        assert ran


@pytest.mark.parametrize(("name", "reads_pairs"), [("GCN", False), ("GRIT", True)])
def test_message_passing_makes_no_rows_of_pairs(name, reads_pairs, monkeypatch):
    """They would take memory with the square of the nodes of a graph, for a model that does not read them."""
    made, right = [], PairLayout.__dict__["_query_P"].func
    watched = cached_property(lambda layout: made.append(layout) or right(layout))
    watched.__set_name__(PairLayout, "_query_P")
    monkeypatch.setattr(PairLayout, "_query_P", watched)
    _, model, ran = compiled(name, 1, dynamic=False)
    model.train()(batch_of((5, 6)))
    assert ran and bool(made) == reads_pairs
