"""One of two processes that the test of processes starts: gradients of every model on a divided batch, in float64."""

import sys
from pathlib import Path

MODELS_DIR = Path(__file__).resolve().parents[1] / "models"
sys.path[:0] = [str(MODELS_DIR), str(MODELS_DIR.parents[1])]

import torch  # noqa: E402
from model_graphs import ENCODINGS, SIZES, SPEC, assert_same_gradients, random_graphs, shaken  # noqa: E402
from small_configs import csa_config, gps_config, grit_config  # noqa: E402

from graphgps_spse.models.build import build_model  # noqa: E402
from graphgps_spse.training.processes import OneProcess, join_processes  # noqa: E402

MODELS = {
    "GRIT": (grit_config, ["SPSE"], SIZES),
    "CSA": (lambda: csa_config("shared"), ["walks"], SIZES),
    "GPS": (lambda: gps_config("SPSE"), ["RWSE", "SPSE"], SIZES),
    "GPS, one share without edges": (lambda: gps_config("SPSE"), ["RWSE", "SPSE"], (9, 1, 4, 1, 6, 1, 4)),
}


def step(name: str, processes: OneProcess) -> tuple[dict, dict, list]:
    """Return the gradients, buffers and gathered order of one step on seven graphs; each process has its share."""
    config, encodings, sizes = MODELS[name]
    torch.manual_seed(0)
    model = shaken(build_model(config(), SPEC, [ENCODINGS[e] for e in encodings], 1)).train()
    processes.synchronise_norms(model)
    forward = processes.wrap(model)
    batch = random_graphs(sizes).batch(range(7)[processes.rank :: processes.count])
    pred, y, index_B = processes.gather_rows([forward(batch), batch.y, batch.index_B], torch.device("cpu"))
    ((pred - y).square().mean() * processes.count).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return gradients, dict(model.named_buffers()), index_B.tolist()


def main() -> None:
    """Compare with the same step in one process, which every process can do for itself."""
    torch.set_num_threads(1)
    processes = join_processes()
    assert processes.count == 2
    for name in MODELS:
        ours, our_buffers, order = step(name, processes)
        theirs, their_buffers, _ = step(name, OneProcess())
        assert sorted(order) == list(range(7)) and order != sorted(order)
        assert_same_gradients(ours, theirs, 1e-9)
        for key, buffer in their_buffers.items():
            torch.testing.assert_close(our_buffers[key], buffer, rtol=1e-12, atol=1e-12)
        sys.stdout.write(f"{name}: {len(ours)} gradients\n")
    processes.close()


if __name__ == "__main__":
    main()
