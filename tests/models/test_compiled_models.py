"""torch.compile makes one graph of all layers of a model: the number of its graphs does not grow with the layers."""

import pytest
import torch
from model_graphs import ENCODINGS, SPEC, random_graphs
from small_configs import csa_config, gnn_config, gps_config, grit_config, ppgt_config

from graphgps_spse.models.build import build_model, prepare_kernels
from graphgps_spse.ops import dispatch

CASES = {
    "GRIT": (grit_config, ["RRWP"]),
    "GPS": (gps_config, ["RWSE"]),
    "CSA": (lambda **gt: csa_config("SPSE", **gt), ["RWSE", "SPSE"]),
    "PPGT": (ppgt_config, ["RRWP"]),
    "GCN": (lambda layers: gnn_config("GCN", layers=layers), ["RWSE"]),
    "GAT": (lambda layers: gnn_config("GAT", layers=layers), ["RWSE", "SPD"]),
}


def count_graphs(name: str, layers: int, *, dynamic: bool) -> int:
    """Return the number of graphs that a forward pass runs, and compare its result with that without a compiler."""
    config, names = CASES[name]
    model = build_model(config(layers=layers), SPEC, [ENCODINGS[n] for n in names], 1).double().eval()
    prepare_kernels(model)
    sizes, ran = [(5, 6), (4, 9, 2)] if dynamic else [(5, 6)], []
    batches = [random_graphs(sizes_B).batch(range(len(sizes_B))) for sizes_B in sizes]

    def backend(graph, examples):
        def run(*args):
            ran.append(graph)
            return graph(*args)

        return run

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    for batch in batches:
        ran.clear()
        torch.testing.assert_close(compiled(batch), model(batch), rtol=1e-10, atol=1e-12)
    return len(ran)


@pytest.mark.parametrize(
    ("name", "device", "dynamic"),
    [
        ("GPS", "cuda", False),
        *(pytest.param(name, device, True, marks=pytest.mark.long) for name in CASES for device in ("cuda", "cpu")),
    ],
)
def test_the_number_of_graphs_does_not_grow_with_the_layers(name, device, dynamic, monkeypatch):
    """With kernels of GPUs, which Triton's interpreter runs, and with PyTorch alone; for batches of any sizes."""
    if device == "cuda":
        pytest.importorskip("triton", reason="the kernels need Triton")
        monkeypatch.setattr(dispatch, "_device_of", lambda like: "cuda")
    assert count_graphs(name, 2, dynamic=dynamic) == count_graphs(name, 4, dynamic=dynamic) <= 3
