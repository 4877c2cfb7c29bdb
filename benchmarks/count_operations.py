"""Count the operations of a training step, about one kernel launch each on a GPU.

    python benchmarks/count_operations.py [--out FILE]

Model and batch are on the device "meta", where tensors have no values: reading one would be an error, so a step that
can be counted never waits for the device. Counted are the operations that PyTorch dispatches in the forward pass, the
loss and the backward pass of the shipped RWSE configurations for ZINC with batches of 32 generated molecules. Views and
allocations are not counted, as they launch nothing. `plain` is the implementation in PyTorch alone, `kernels` that of
CUDA devices; both on the same batch. On "meta", PyTorch's own attention is counted as the operations that it replaces
on a GPU, so for GPS `kernels` is an upper bound. The optimiser and gradient clipping add the same operations to each.
"""

import argparse
import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch  # noqa: E402
import training_cases  # noqa: E402
from this_machine import environment  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from graphgps_spse.data.base import GraphBatch  # noqa: E402
from graphgps_spse.ops import dispatch  # noqa: E402

ALLOCATIONS = {"detach", "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view"}
LAUNCHES = {"grit_update": 2}  # of our operators, where it is not 1
BATCH_SIZE = 32


class Count(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.number: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation and run it."""
        name = function._schema.name.split("::")[1]
        if not function.is_view and name not in ALLOCATIONS:
            self.number[name] += LAUNCHES.get(name, 1)
        return function(*args, **(kwargs or {}))


def count(model: torch.nn.Module, batch: GraphBatch) -> dict[str, int]:
    """Return the operations of the forward pass, and of the whole step without the optimiser."""
    model.zero_grad(set_to_none=True)
    with Count() as counted:
        predicted = model(batch)
        forward = counted.number.total()
        torch.nn.functional.l1_loss(predicted, batch.y).backward()
    return {"forward": forward, "forward_and_backward": counted.number.total()}


def main(words: list[str] | None = None) -> int:
    """Count, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "gpu_operations.json")
    arguments = parser.parse_args(words)
    of_device, records = dispatch.device_module, {}
    family = training_cases.FAMILIES["zinc"]
    for name in ("GRIT", "CSA", "GPS"):
        cfg = training_cases.load(name, "zinc", dropout=True)
        batch = training_cases.batches_of(cfg, family, None, BATCH_SIZE, 1)[0].to("meta")
        model = training_cases.model_of(cfg, family).to("meta").train()
        records[f"{name}-zinc"] = {}
        for kind, device in (("plain", "none"), ("kernels", "cuda")):
            dispatch.device_module = lambda package, _, device=device: of_device(package, device)
            records[f"{name}-zinc"][kind] = count(model, batch)
            print(name, kind, records[f"{name}-zinc"][kind], flush=True)
    dispatch.device_module = of_device
    about = environment() | {"torch": version("torch")}
    record = {"environment": about, "batch_size": BATCH_SIZE, "models": records}
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
