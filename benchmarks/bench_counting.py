"""Simple paths of real ZINC molecules: our counter, networkx and rustworkx, equality first, then time.

    python benchmarks/bench_counting.py [--data datasets/ZINC] [--repeats 7] [--sample 400]

One thread. Every figure is the median over the repeats, in seconds of process CPU time (and of the wall clock).
The others return paths, not counts: networkx is timed to run its generators, rustworkx to return a mapping that is
then not read.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import rustworkx as rx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from graphgps_spse.counting import count_simple_paths, count_simple_paths_many, map_path_counts  # noqa: E402
from graphgps_spse.data.zinc import Zinc  # noqa: E402
from graphgps_spse.encodings.base import GraphArrays  # noqa: E402
from graphgps_spse.encodings.rrwp import RRWP  # noqa: E402
from graphgps_spse.encodings.spse import SPSE  # noqa: E402


def load_zinc(root: Path) -> GraphArrays:
    """All 12,000 molecules: train, val, test."""
    splits = Zinc(root=root, subset=True, num_node_types=21, num_edge_types=4).load().values()
    node_ptr, edge_ptr = (
        np.concatenate([[0], np.cumsum(np.concatenate([np.diff(ptr.numpy()) for ptr in ptrs]))])
        for ptrs in ([s.node_ptr for s in splits], [s.edge_ptr for s in splits])
    )
    return GraphArrays(node_ptr, edge_ptr, np.concatenate([s.edge_index_2E.numpy() for s in splits], axis=1))


def select(graphs: GraphArrays, chosen: list[int]) -> GraphArrays:
    """The chosen graphs as flat arrays."""
    parts = [one_graph(graphs, g) for g in chosen]
    node_ptr, edge_ptr = (np.cumsum([0, *x]) for x in ([n for _, n in parts], [e.shape[1] for e, _ in parts]))
    return GraphArrays(node_ptr, edge_ptr, np.concatenate([e for e, _ in parts], axis=1))


def one_graph(graphs: GraphArrays, g: int) -> tuple[np.ndarray, int]:
    """Edges and size of graph g."""
    edges = graphs.edge_index[:, graphs.edge_ptr[g] : graphs.edge_ptr[g + 1]]
    return edges, int(graphs.node_ptr[g + 1] - graphs.node_ptr[g])


def networkx_paths(graph: nx.Graph, max_length: int, counts: np.ndarray | None = None) -> None:
    for source in graph:
        for path in nx.all_simple_paths(graph, source, set(graph) - {source}, cutoff=max_length):
            if counts is not None:
                counts[len(path) - 2, source, path[-1]] += 1


def rustworkx_paths(graph: rx.PyGraph, max_length: int, counts: np.ndarray | None = None) -> None:
    # Its cutoff counts nodes; with more of them than edges allowed, paths of up to max_length edges are all there.
    found = rx.all_pairs_all_simple_paths(graph, cutoff=max_length + 1)
    if counts is not None:
        for source, by_target in found.items():
            for target, paths in by_target.items():
                for path in paths:
                    if len(path) - 1 <= max_length:
                        counts[len(path) - 2, source, target] += 1


def check_equal(ours: list[np.ndarray], theirs: Callable, inputs: list, max_length: int, name: str) -> None:
    for counts, graph in zip(ours, inputs, strict=True):
        expected = np.zeros_like(counts)
        theirs(graph, max_length, expected)
        if not np.array_equal(counts, expected):
            raise SystemExit(f"counts differ from {name}: {counts.sum()} paths against {expected.sum()}")


def measure(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Median seconds of `work`, after one call that is reported apart: it meets memory for the first time."""
    cpu, wall = [], []
    for _ in range(repeats + 1):
        begin_cpu, begin_wall = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - begin_cpu)
        wall.append(time.perf_counter() - begin_wall)
    return {
        "cpu_s": statistics.median(cpu[1:]),
        "cpu_min_s": min(cpu[1:]),
        "wall_s": statistics.median(wall[1:]),
        "first_cpu_s": cpu[0],
    }


def compile_seconds() -> dict[str, float]:
    """Seconds until all kernels are ready in a new process: with an empty cache on disk, then with the one it left."""
    code = "from graphgps_spse.encodings import compile_kernels; print(compile_kernels())"
    with tempfile.TemporaryDirectory() as cache:
        variables = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        runs = [
            subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
    return {"first": float(runs[0].stdout), "cached": float(runs[1].stdout)}


def environment() -> dict[str, Any]:
    """Where this ran."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")] if cpuinfo.exists() else []

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "cores": len(models),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "networkx", "rustworkx")},
        "commit": git("rev-parse", "HEAD") or "none",
        "uncommitted_changes": bool(git("status", "--porcelain", "graphgps_spse", "benchmarks/bench_counting.py")),
        "command": " ".join(["python", "benchmarks/bench_counting.py", *sys.argv[1:]]),
    }


def bench_sample(graphs: GraphArrays, args: argparse.Namespace) -> dict[str, Any]:
    """Ours against the libraries on the same graphs, in turn."""
    chosen = np.random.default_rng(args.seed).choice(len(graphs.node_ptr) - 1, args.sample, replace=False).tolist()
    sample = select(graphs, chosen)
    pairs = [one_graph(sample, g) for g in range(args.sample)]
    in_networkx, in_rustworkx = [], []
    for edges, n in pairs:
        in_networkx.append(nx.Graph())
        in_networkx[-1].add_nodes_from(range(n))
        in_networkx[-1].add_edges_from(edges.T.tolist())
        in_rustworkx.append(rx.PyGraph(multigraph=False))
        in_rustworkx[-1].add_nodes_from(range(n))
        in_rustworkx[-1].add_edges_from_no_data([tuple(edge) for edge in edges.T.tolist()])
    many = count_simple_paths_many(sample, args.max_length)
    ours = [many.counts_of(g) for g in range(args.sample)]
    check_equal(ours, networkx_paths, in_networkx, args.max_length, "networkx")
    check_equal(ours, rustworkx_paths, in_rustworkx, args.max_length, "rustworkx")
    print(f"counts equal networkx and rustworkx: {args.sample} graphs, {int(many.counts.sum()):,} paths")
    times = {
        "ours": measure(lambda: count_simple_paths_many(sample, args.max_length), args.repeats),
        "ours_one_call_per_graph": measure(
            lambda: [count_simple_paths(edges, n, args.max_length) for edges, n in pairs], args.repeats
        ),
        "rustworkx": measure(lambda: [rustworkx_paths(g, args.max_length) for g in in_rustworkx], args.repeats),
        "networkx": measure(
            lambda: [networkx_paths(g, args.max_length) for g in in_networkx], max(1, args.repeats // 3)
        ),
    }
    for result in times.values():
        result["us_per_graph"] = 1e6 * result["cpu_s"] / args.sample
        result["times_ours"] = result["cpu_s"] / times["ours"]["cpu_s"]
    return {"graphs": args.sample, "seed": args.seed, "paths": int(many.counts.sum()), "checked_equal": True, **times}


def bench_all(graphs: GraphArrays, args: argparse.Namespace) -> dict[str, Any]:
    """All molecules: counting alone, counting into one array, and the encodings that training reads."""
    num_graphs, total = len(graphs.node_ptr) - 1, 0.0

    def add(first: int, last: int, chunk: Any) -> None:
        nonlocal total
        total += chunk.counts.sum()

    map_path_counts(graphs, args.max_length, add)
    spse = SPSE(max_length=args.max_length, node_pe="none")
    with_nodes, rrwp = SPSE(max_length=args.max_length), RRWP(num_channels=args.max_length + 1)
    works: dict[str, Callable[[], Any]] = {
        "count": lambda: map_path_counts(graphs, args.max_length, lambda *_: None),
        "count_into_float32_array": lambda: count_simple_paths_many(graphs, args.max_length, dtype=np.float32),
        "encode_spse": lambda: spse.compute(graphs),
        "encode_spse_with_rwse_nodes": lambda: with_nodes.compute(graphs),
        "encode_rrwp": lambda: rrwp.compute(graphs),
    }
    times = {name: measure(work, args.repeats) for name, work in works.items()}
    for result in times.values():
        result["us_per_graph"] = 1e6 * result["cpu_s"] / num_graphs
    times["count"]["paths_per_s"] = total / times["count"]["cpu_s"]
    return {"graphs": num_graphs, "paths": int(total), **times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=ROOT / "datasets" / "ZINC", help="folder that PyG reads and downloads ZINC into"
    )
    parser.add_argument("--max-length", type=int, default=20, help="K, in edges")
    parser.add_argument("--sample", type=int, default=400, help="graphs that the libraries see")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/counting.json")
    args = parser.parse_args()
    graphs = load_zinc(args.data)
    result = {
        "environment": environment(),
        "max_length": args.max_length,
        "repeats": args.repeats,
        "compile_s": compile_seconds(),
        "sample": bench_sample(graphs, args),
        "all": bench_all(graphs, args),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=2) + "\n")
    for part in ("sample", "all"):
        for name, times in result[part].items():
            if isinstance(times, dict):
                ratio = f"  {times['times_ours']:7.1f} x ours" if "times_ours" in times else ""
                print(f"{part:7}{name:30}{times['cpu_s']:9.4f} s CPU {times['us_per_graph']:9.2f} us/graph{ratio}")


if __name__ == "__main__":
    main()
