"""One of the processes that the test of processes starts: gradients on a divided batch, in float64.

python tests/training/process_group.py MODEL ..
"""

import sys
from functools import partial
from pathlib import Path
from unittest import mock

MODELS_DIR = Path(__file__).resolve().parents[1] / "models"
sys.path[:0] = [str(MODELS_DIR), str(MODELS_DIR.parents[1])]

import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  DistributedDataParallel imports it: before the fork, it takes its seconds once
from model_graphs import ENCODINGS, SIZES, SPEC, assert_same_gradients, random_graphs, shaken  # noqa: E402
from small_configs import csa_config, gps_config, grit_config  # noqa: E402

from graphgps_spse.data.base import GraphBatch  # noqa: E402
from graphgps_spse.models.build import build_model  # noqa: E402
from graphgps_spse.training.processes import OneProcess, join_processes  # noqa: E402
from graphgps_spse.training.trainer import compile_layers  # noqa: E402


def gps(layers: int = 2) -> torch.nn.Module:
    """GPS with BatchNorm of nodes and of edges."""
    return build_model(gps_config("SPSE", layers=layers), SPEC, [ENCODINGS["RWSE"], ENCODINGS["SPSE"]], 1)


class Nodes(torch.nn.Module):
    """Linear maps of nodes with BatchNorm, and the nodes' sums: little to compile."""

    def __init__(self) -> None:
        super().__init__()
        parts = ((torch.nn.Linear(width, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()) for width in (1, 4, 4))
        self.layers, self.head = (
            torch.nn.ModuleList(torch.nn.Sequential(*part) for part in parts),
            torch.nn.Linear(4, 1),
        )

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        """Return [B, 1]."""
        x_ND = batch.x_NF.double()
        for layer in self.layers:
            x_ND = layer(x_ND)
        return torch.stack([part.sum(0) for part in self.head(x_ND).split(batch.sizes)])


MODELS = {
    "GRIT": (lambda: build_model(grit_config(layers=2), SPEC, [ENCODINGS["SPSE"]], 1), SIZES),
    "CSA": (lambda: build_model(csa_config("shared", layers=2), SPEC, [ENCODINGS["walks"]], 1), SIZES),
    "GPS": (gps, SIZES),
    "GPS, one share without edges": (gps, (9, 1, 4, 1, 6, 1, 4)),
    "Nodes, compiled": (Nodes, SIZES),
    "GPS, compiled": (lambda: gps(1), SIZES),
}


def step(name: str, processes: OneProcess) -> tuple[dict, dict, list]:
    """Return the gradients, buffers and gathered order of one step on seven graphs; each process has its share."""
    build, sizes = MODELS[name]
    torch.manual_seed(0)
    model = shaken(build()).train()
    processes.synchronise_norms(model)
    if name.endswith("compiled") and processes.count > 1:
        with mock.patch.object(torch, "compile", partial(torch.compile, backend="aot_eager")):
            compile_layers(model)
    forward = processes.wrap(model)
    batch = random_graphs(sizes).batch(range(len(sizes))[processes.rank :: processes.count])
    pred, y, index_B = processes.gather_rows([forward(batch), batch.y, batch.index_B], torch.device("cpu"))
    ((pred - y).square().mean() * processes.count).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return gradients, dict(model.named_buffers()), index_B.tolist()


def main() -> None:
    """Compare with the same step in one process, which every process can do for itself; alone, it is a warm-up."""
    torch.set_num_threads(1)
    processes = join_processes()
    for name in sys.argv[1:]:
        ours, our_buffers, order = step(name, processes)
        theirs, their_buffers, _ = step(name, OneProcess())
        assert sorted(order) == list(range(len(order)))
        assert processes.count == 1 or order != sorted(order)
        assert_same_gradients(ours, theirs, 1e-9)
        for key, buffer in their_buffers.items():
            torch.testing.assert_close(our_buffers[key], buffer, rtol=1e-12, atol=1e-12)
        sys.stdout.write(f"{name}: {len(ours)} gradients\n")
    processes.close(failed=False)


if __name__ == "__main__":
    main()
