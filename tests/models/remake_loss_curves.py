"""Losses of the first steps of every model, at full precision: `python tests/models/remake_loss_curves.py` stores them.

A change of the mathematics shows here, wherever it is made. Everything is float64 on one thread, and graphs and weights
come from fixed seeds: weights by numpy, whose uniform numbers are the same on every machine, which torch's normal ones
are not. There is no dropout, for the same reason.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from model_graphs import ENCODINGS, SPEC, random_graphs  # noqa: E402
from small_configs import csa_config, gps_config, grit_config  # noqa: E402

from graphgps_spse.models.build import build_model  # noqa: E402

STORED = HERE / "loss_curves.json"
NUM_STEPS, BATCH = 10, 8
SEED = 4  # one with which no signed root of GRIT's comes near 0, where its slope would blow rounding up
MODELS = {  # configuration and the encodings that it reads
    "GPS-RWSE": (lambda kernels: gps_config("GINE", kernels=kernels), ["RWSE"]),
    "GPS-SPSE": (lambda kernels: gps_config("SPSE", kernels=kernels), ["RWSE", "SPSE"]),
    "CSA-RWSE": (lambda kernels: csa_config("shared", kernels=kernels), ["walks"]),
    "CSA-SPSE": (lambda kernels: csa_config("SPSE", kernels=kernels), ["RWSE", "SPSE"]),
    "GRIT-RWSE": (lambda kernels: grit_config(kernels=kernels), ["RRWP"]),
    "GRIT-SPSE": (lambda kernels: grit_config(kernels=kernels), ["SPSE"]),
}


def loss_curve(name: str, kernels: str = "auto") -> list[float]:
    """Train a model on 32 small graphs, four batches in turn; return the loss of each step."""
    config, encodings = MODELS[name]
    model = build_model(config(kernels), SPEC, [ENCODINGS[e] for e in encodings], 1).double().train()
    rng = np.random.default_rng(SEED)
    for parameter in model.parameters():
        if parameter.dim() > 1:  # norms keep 1 and 0
            bound = parameter.shape[-1] ** -0.5
            parameter.data = torch.from_numpy(bound * (2 * rng.random(tuple(parameter.shape)) - 1))
        elif bool((parameter.data != 1).any()):
            parameter.data.zero_()
    dataset = random_graphs((4, 5, 6, 7) * BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, eps=1e-4)
    losses = []
    for step in range(NUM_STEPS):
        first = step % 4 * BATCH
        batch = dataset.batch(range(first, first + BATCH))
        optimizer.zero_grad()
        loss = (model(batch) - batch.y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    torch.set_num_threads(1)
    curves = {name: [float(f"{loss:.17g}") for loss in loss_curve(name)] for name in MODELS}
    STORED.write_text(json.dumps(curves, indent=1) + "\n")


if __name__ == "__main__":
    main()
