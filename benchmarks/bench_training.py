"""Training steps of GRIT on real ZINC: ours, the dense padded twin of the tests and, given a clone, the official code.

    python benchmarks/bench_training.py [--data datasets/ZINC] [--batch-sizes 32 256] [--steps 8]
                                        [--official CLONE_OF_LiamMa/GRIT]

One step is forward, backward, gradient clipping and AdamW, in float32 on one thread, with the settings of GRIT-ZINC.
Outputs and gradients of all are compared in float64 first. Then each runs in a process of its own, all on the same
batches in turns, so that they share the machine's moods; figures are medians of process CPU time. Each is measured
with glibc's allocator as it comes and with the two variables that keep it from returning memory to the system.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "tests" / "models")]

from dense_grit import dense_grit  # noqa: E402
from official_names import our_name  # noqa: E402

from graphgps_spse.config import default_tree  # noqa: E402
from graphgps_spse.data.base import GraphBatch  # noqa: E402
from graphgps_spse.data.zinc import Zinc  # noqa: E402
from graphgps_spse.encodings.base import GraphArrays  # noqa: E402
from graphgps_spse.encodings.rrwp import RRWP  # noqa: E402
from graphgps_spse.models.build import build_model, count_parameters  # noqa: E402
from graphgps_spse.models.grit_fused import compile_kernels  # noqa: E402

ALLOCATORS = {
    "default": {},
    "tuned": {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"},
}
DENSE_MAX_BATCH = 64  # the twin keeps about 20 padded [B, M, M, D] tensors a layer: tens of GiB at 256
SEED = 0


def zinc(root: Path = Path("datasets/ZINC")) -> Zinc:
    """ZINC subset as configs/GRIT/zinc-RWSE.yaml describes it."""
    return Zinc(root=root, subset=True, num_node_types=21, num_edge_types=4)


def load_batches(data: Path, batch_size: int, num_batches: int) -> list[GraphBatch]:
    """Draw batches of training molecules without replacement within each, and give them their RRWP."""
    graphs = zinc(data).load()["train"]
    rng = np.random.default_rng(SEED)
    draws = [rng.choice(len(graphs), batch_size, replace=False) for _ in range(num_batches)]
    return [with_rrwp(graphs.batch(draw)) for draw in draws]


def with_rrwp(batch: GraphBatch) -> GraphBatch:
    """Encode the graphs of one batch alone: the encoding of all of ZINC would hide the peak memory of training."""
    node_ptr = np.cumsum([0, *batch.sizes])
    edges = batch.edge_index_2E.numpy()
    graph_E = np.searchsorted(node_ptr, edges[0], side="right") - 1
    edge_ptr = np.searchsorted(graph_E, np.arange(len(batch.sizes) + 1))
    encoded = RRWP(num_channels=21).compute(GraphArrays(node_ptr, edge_ptr, edges - node_ptr[graph_E]))
    pair, node = torch.from_numpy(encoded.pair), torch.from_numpy(encoded.node)
    return replace(batch, pair={"RRWP": pair}, node={"RRWP": node})


def grit_zinc(attn_dropout: float) -> torch.nn.Module:
    """GRIT-ZINC in the default tree, which holds its sizes."""
    tree = default_tree()
    tree.gt.attn_dropout = attn_dropout
    torch.manual_seed(SEED)
    return build_model(tree, zinc().spec, [RRWP(num_channels=21)], 1)


class Runner:
    """One implementation behind one interface: loss of a batch."""

    def __init__(self, name: str, official: str, dtype: torch.dtype, attn_dropout: float) -> None:
        self.name, self.dtype = name, dtype
        self.model = grit_zinc(attn_dropout).to(dtype)
        if name == "official":
            import official_grit

            ours, self.module = self.model.state_dict(), official_grit
            self.model = official_grit.build_official(Path(official)).to(dtype)
            for layer in self.model.layers:
                layer.attention.dropout.p = attn_dropout
            state = self.model.state_dict()
            self.model.load_state_dict({k: v if "padding" in k else ours[our_name(k)] for k, v in state.items()})

    def prepare(self, batch: GraphBatch) -> Any:
        """Return the batch in the form and type that `loss` reads."""
        pair, node = ({k: v.to(self.dtype) for k, v in d.items()} for d in (batch.pair, batch.node))
        batch = replace(batch, pair=pair, node=node, y=batch.y.to(self.dtype))
        return self.module.official_batch(batch, "RRWP") if self.name == "official" else batch

    def loss(self, batch: Any) -> torch.Tensor:
        """Return the mean absolute error."""
        if self.name == "official":
            out, y = self.model(batch.clone())
            return (out[:, 0] - y).abs().mean()
        out = dense_grit(self.model, batch) if self.name == "dense" else self.model(batch)
        return (out - batch.y).abs().mean()

    def gradients(self, batch: Any) -> dict[str, torch.Tensor]:
        """Return the loss and every parameter's gradient under our names."""
        loss = self.loss(batch)
        loss.backward()
        names = our_name if self.name == "official" else str
        found = {names(n): p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        return {"loss": loss.detach(), **found}


def check(runners: list[str], official: str, batch: GraphBatch) -> dict[str, float]:
    """Return each runner's largest relative difference from ours, over the loss and all gradients, in float64."""
    results = {}
    for name in ["ours", *(r for r in runners if r != "ours")]:
        runner = Runner(name, official, torch.float64, attn_dropout=0.0)
        runner.model.train()
        results[name] = runner.gradients(runner.prepare(batch))
    ours = results.pop("ours")
    scale = max(float(g.norm()) for g in ours.values())
    errors = {}
    for name, theirs in results.items():
        differences = {k: float((ours[k] - theirs[k]).norm() / max(ours[k].norm(), 1e-9 * scale)) for k in ours}
        worst = max(differences, key=differences.__getitem__)
        errors[name] = differences[worst]
        if not errors[name] < 1e-6:
            raise SystemExit(f"{name} disagrees with ours in {worst}: relative difference {errors[name]:.1e}")
    return errors


def work(args: argparse.Namespace) -> None:
    """Be one runner: for each line on standard input do one step, and print its times and the peak memory."""
    torch.set_num_threads(1)
    batches = load_batches(args.data, args.batch_sizes[0], args.steps + 1)
    if args.worker == "ours":
        compile_kernels(64, 8)
    runner = Runner(args.worker, args.official, torch.float32, attn_dropout=0.2)
    # Each as its users run it: our training loop asks for the fused kernel, the official one does not.
    fused = args.worker == "ours"
    optimizer = torch.optim.AdamW(runner.model.parameters(), lr=1e-3, weight_decay=1e-5, fused=fused)
    runner.model.train()
    for line in sys.stdin:
        batch = runner.prepare(batches[int(line)])
        wall, cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        runner.loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(runner.model.parameters(), 1.0)
        optimizer.step()
        seconds = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        print(json.dumps({**seconds, "peak_MiB": peak_memory()}), flush=True)


def peak_memory() -> float:
    """MiB resident at most since this program started (rusage would count the parent that forked it as well)."""
    line = next(line for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(names: list[str], batch_size: int, allocator: str, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Step every runner through the same batches in turns; the first step of each is not counted."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **ALLOCATORS[allocator]}
    command = [sys.executable, __file__, "--data", str(args.data), "--steps", str(args.steps)]
    command += ["--batch-sizes", str(batch_size), "--official", args.official]
    workers = {
        name: subprocess.Popen(
            [*command, "--worker", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for name in names
    }
    records: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for step in range(args.steps + 1):
        for name, worker in workers.items():
            worker.stdin.write(f"{step}\n")
            worker.stdin.flush()
            records[name].append(json.loads(worker.stdout.readline()))
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return {name: summary(values, batch_size) for name, values in records.items()}


def summary(records: list[dict[str, float]], batch_size: int) -> dict[str, float]:
    """Medians over all steps but the first, and the peak over all."""
    cpu_s, wall_s = (statistics.median(r[key] for r in records[1:]) for key in ("cpu_s", "wall_s"))
    return {
        "step_cpu_ms": 1e3 * cpu_s,
        "step_wall_ms": 1e3 * wall_s,
        "fastest_cpu_ms": 1e3 * min(r["cpu_s"] for r in records[1:]),
        "graphs_per_s": batch_size / cpu_s,
        "peak_MiB": records[-1]["peak_MiB"],
    }


def hardware() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").open() if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "numba", "numpy", "torch_geometric")},
    }


def commit() -> str:
    """The checked out commit, marked where files differ from it."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=ROOT / "datasets" / "ZINC", help="folder that PyG reads and downloads ZINC into"
    )
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--official", default="", help="a clone of the official GRIT repository")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "training.json")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = parse()
    if args.worker:
        work(args)
        return
    names = ["ours", "dense", *(["official"] if args.official else [])]
    errors = check(names, args.official, load_batches(args.data, 8, 1)[0])
    print("largest relative difference from ours in float64, loss and gradients:", errors)
    results = []
    for batch_size in args.batch_sizes:
        runners = [name for name in names if name != "dense" or batch_size <= DENSE_MAX_BATCH]
        for allocator in ALLOCATORS:
            record = measure(runners, batch_size, allocator, args)
            results.append({"batch_size": batch_size, "allocator": allocator, "runs": record})
            for name, run in record.items():
                ratio = run["step_cpu_ms"] / record["ours"]["step_cpu_ms"]
                memory = run["peak_MiB"] / record["ours"]["peak_MiB"]
                print(
                    f"batch {batch_size:4d}  {allocator:8s} {name:9s} {run['step_cpu_ms']:9.1f} ms/step"
                    f" {run['graphs_per_s']:8.1f} graphs/s {run['peak_MiB']:7.0f} MiB"
                    f"   {ratio:5.2f} x our time, {memory:4.2f} x our memory"
                )
    command = [Path(sys.executable).name, "benchmarks/bench_training.py", *sys.argv[1:]]
    record = {
        "what": "one training step of GRIT-ZINC with RRWP on real molecules, one thread, float32, median CPU time",
        "parameters": count_parameters(grit_zinc(0.2)),
        "max_relative_difference_float64": errors,
        "results": results,
        "hardware": hardware(),
        "commit": commit(),
        "command": " ".join("CLONE" if word == args.official and word else word for word in command),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
