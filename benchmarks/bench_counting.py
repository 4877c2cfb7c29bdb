"""Counting simple paths: equality or error first, then time, against libraries, a plain search and the authors' code.

    python benchmarks/bench_counting.py --data DATA [--authors CLONE] [--only zinc,mnist] [--repeats 7]

One thread. Times are medians in seconds of process CPU time. DATA holds the graphs as graphs.py describes; CLONE is a
clone of the authors' counter. Parts that were not run keep their figures in the results file.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import rustworkx as rx
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import authors_counter  # noqa: E402
import graphs as sources  # noqa: E402
import plain_search  # noqa: E402
from graphs import flatten, one_graph, select  # noqa: E402
from this_machine import environment  # noqa: E402

from graphgps_spse.arguments import at_least_one, check_out  # noqa: E402
from graphgps_spse.counting import (  # noqa: E402
    COUNTERS,
    PathCounts,
    compile_counters,
    count_simple_paths,
    count_simple_paths_many,
    map_path_counts,
)
from graphgps_spse.encodings.base import GraphArrays  # noqa: E402
from graphgps_spse.encodings.rrwp import RRWP  # noqa: E402
from graphgps_spse.encodings.scaling import scale_counts  # noqa: E402
from graphgps_spse.encodings.spse import SPSE  # noqa: E402

TRUTH_WORK = 12_000_000_000  # work allowed for the exact counts of one graph that estimates are held against
SBM = {"alpha": 0.2, "beta": -0.2, "n": 3}  # f of the SBM and superpixel configurations
PAPER = {"R": 0.4, "D_dfs": 2, "N": 7}  # the paper's counting parameters for PATTERN and CLUSTER


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


def clock(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` returns, and its CPU seconds."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def alternate(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each work, `repeats` of each, one work after the other: so all meet the same machine."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            seconds[name].append(clock(work)[1])
    return {name: values[1:] for name, values in seconds.items()}  # the first met memory and caches for the first time


def size(graphs: GraphArrays) -> int:
    return len(graphs.node_ptr) - 1


# Molecules: exact counts ----------------------------------------------------------------------------------------------


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


def as_rustworkx(edges: np.ndarray, num_nodes: int) -> rx.PyGraph:
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from_no_data([tuple(edge) for edge in edges.T.tolist()])
    return graph


def check_equal(ours: list[np.ndarray], theirs: Callable, inputs: list, max_length: int, name: str) -> None:
    for counts, graph in zip(ours, inputs, strict=True):
        expected = np.zeros_like(counts)
        theirs(graph, max_length, expected)
        if not np.array_equal(counts, expected):
            raise SystemExit(f"counts differ from {name}: {counts.sum()} paths against {expected.sum()}")


def against_libraries(graphs: GraphArrays, max_length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Ours against the libraries on a sample of graphs, in turn."""
    chosen = np.random.default_rng(args.seed).choice(size(graphs), min(args.sample, size(graphs)), replace=False)
    sample = select(graphs, chosen)
    pairs = [one_graph(sample, g) for g in range(size(sample))]
    in_networkx, in_rustworkx = [], []
    for edges, n in pairs:
        in_networkx.append(nx.Graph())
        in_networkx[-1].add_nodes_from(range(n))
        in_networkx[-1].add_edges_from(edges.T.tolist())
        in_rustworkx.append(as_rustworkx(edges, n))
    many = count_simple_paths_many(sample, max_length)
    ours = [many.counts_of(g) for g in range(size(sample))]
    check_equal(ours, networkx_paths, in_networkx, max_length, "networkx")
    check_equal(ours, rustworkx_paths, in_rustworkx, max_length, "rustworkx")
    times = {
        "ours": measure(lambda: count_simple_paths_many(sample, max_length), args.repeats),
        "ours_streamed": measure(lambda: map_path_counts(sample, max_length, lambda *_: None), args.repeats),
        "ours_one_call_per_graph": measure(
            lambda: [count_simple_paths(edges, n, max_length) for edges, n in pairs], args.repeats
        ),
        "rustworkx": measure(lambda: [rustworkx_paths(g, max_length) for g in in_rustworkx], args.repeats),
        "networkx": measure(lambda: [networkx_paths(g, max_length) for g in in_networkx], max(1, args.repeats // 3)),
    }
    for result in times.values():
        result["us_per_graph"] = 1e6 * result["cpu_s"] / size(sample)
        result["times_ours"] = result["cpu_s"] / times["ours"]["cpu_s"]
    return {"graphs": size(sample), "paths": int(many.counts.sum()), "checked_equal": True, **times}


def bench_calls(args: argparse.Namespace) -> dict[str, Any]:
    """One call for each ZINC molecule, K 20, its result dropped: against rustworkx and against a batch, in turn."""
    everything, max_length = sources.zinc(args.data), 20
    chosen = np.random.default_rng(args.seed).choice(
        size(everything), min(args.sample, size(everything)), replace=False
    )
    sample = select(everything, chosen)
    arrays = [(np.ascontiguousarray(edges), n) for edges, n in (one_graph(sample, g) for g in range(size(sample)))]
    inputs = {"array": arrays, "list": [(e.tolist(), n) for e, n in arrays]}
    inputs["tensor"] = [(torch.from_numpy(e), n) for e, n in arrays]
    in_rustworkx = [as_rustworkx(edges, n) for edges, n in arrays]

    def count_all(graphs: list, method: str) -> Callable[[], None]:
        def work() -> None:
            for edges, n in graphs:
                count_simple_paths(edges, n, max_length, method=method)

        return work

    def count_rustworkx() -> None:
        for graph in in_rustworkx:
            rustworkx_paths(graph, max_length)

    ours = [count_simple_paths(edges, n, max_length).counts for edges, n in arrays]
    check_equal(ours, rustworkx_paths, in_rustworkx, max_length, "rustworkx")
    works = {
        f"{method}_{form}": count_all(graphs, method) for form, graphs in inputs.items() for method in ("exact", "auto")
    }
    works["batch"] = lambda: count_simple_paths_many(sample, max_length)
    works["rustworkx"] = count_rustworkx
    result: dict[str, Any] = {"graphs": size(sample), "max_length": max_length, "checked_equal": True}
    seconds = alternate(works, args.repeats)
    for name, values in seconds.items():
        ratios = [theirs / own for theirs, own in zip(seconds["rustworkx"], values, strict=True)]
        result[name] = {
            "us_per_graph": 1e6 * statistics.median(values) / size(sample),
            "rustworkx_over_this": statistics.median(ratios),
        }
        print(f"{name:14} {result[name]['us_per_graph']:8.1f} us, rustworkx {statistics.median(ratios):.1f} times that")
    return result


def bench_zinc(args: argparse.Namespace) -> dict[str, Any]:
    """ZINC-12k, K 20: against libraries on a sample; all of it counted, streamed and encoded."""
    graphs, max_length = sources.zinc(args.data), 20
    spse = SPSE.of(max_length=max_length, node_pe="none", method="exact")
    rrwp = RRWP.of(ksteps=max_length + 1)
    works: dict[str, Callable[[], Any]] = {
        "count": lambda: map_path_counts(graphs, max_length, lambda *_: None),
        "count_auto": lambda: map_path_counts(graphs, max_length, lambda *_: None, method="auto"),
        "count_into_float32_array": lambda: count_simple_paths_many(graphs, max_length, dtype=np.float32),
        "encode_spse": lambda: spse.compute(graphs),
        "encode_rrwp": lambda: rrwp.compute(graphs),
    }
    times = {name: measure(work, args.repeats) for name, work in works.items()}
    for result in times.values():
        result["us_per_graph"] = 1e6 * result["cpu_s"] / size(graphs)
    return {"max_length": max_length, "sample": against_libraries(graphs, max_length, args), "all": times}


def against_plain_search(graphs: GraphArrays, max_length: int, args: argparse.Namespace) -> dict[str, Any]:
    """Ours against the plain compiled search, every count compared first."""
    many = count_simple_paths_many(graphs, max_length)
    for g, expected in enumerate(plain_search.count(graphs, max_length)):
        if not np.array_equal(many.counts_of(g), expected):
            raise SystemExit(f"graph {g}: counts differ from the plain search")
    times = {
        "ours": measure(lambda: map_path_counts(graphs, max_length, lambda *_: None), args.repeats),
        "plain_search": measure(lambda: plain_search.count(graphs, max_length), max(1, args.repeats // 3)),
    }
    for result in times.values():
        result["us_per_graph"] = 1e6 * result["cpu_s"] / size(graphs)
        result["times_ours"] = result["cpu_s"] / times["ours"]["cpu_s"]
    return {
        "graphs": size(graphs),
        "largest_nodes": int(np.diff(graphs.node_ptr).max()),
        "paths": int(many.counts.sum()),
        "checked_equal": True,
        **times,
    }


def bench_peptides(args: argparse.Namespace) -> dict[str, Any]:
    """Peptides, K 23: the first ones and the largest of all."""
    everything = sources.peptides(args.data)
    largest = int(np.argmax(np.diff(everything.node_ptr)))
    chosen = select(everything, [*range(args.peptides), largest])
    whole = measure(lambda: map_path_counts(everything, 23, lambda *_: None), 1)
    whole["us_per_graph"] = 1e6 * whole["cpu_s"] / size(everything)
    return {"max_length": 23, "sample": against_plain_search(chosen, 23, args), "all_15535": whole}


def bench_pcqm4mv2(args: argparse.Namespace) -> dict[str, Any]:
    """PCQM4Mv2, K 15: the sample, extrapolated; and repeated to a million graphs, streamed, with its peak memory."""
    graphs = sources.pcqm4mv2(args.data)
    result = {"max_length": 15, "sample": against_plain_search(graphs, 15, args)}
    result["core_seconds_for_3_746_620"] = 3_746_620e-6 * result["sample"]["ours"]["us_per_graph"]
    code = (
        "import sys, resource, time; sys.path[:0] = sys.argv[1:3]; import numpy as np, graphs as sources; "
        "from pathlib import Path; from graphgps_spse.counting import map_path_counts; "
        "from graphgps_spse.encodings.base import GraphArrays; g = sources.pcqm4mv2(Path(sys.argv[3])); c = 500; "
        "n, e = (np.concatenate([[0], np.cumsum(np.tile(np.diff(p), c))]) for p in (g.node_ptr, g.edge_ptr)); "
        "many = GraphArrays(n, e, np.tile(g.edge_index, c)); t = time.process_time(); "
        "map_path_counts(many, 15, lambda *_: None); "
        "print(len(n) - 1, time.process_time() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    words = [sys.executable, "-c", code, str(ROOT / "benchmarks"), str(ROOT), str(args.data)]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    result["streamed"] = {"graphs": int(answer[0]), "cpu_s": float(answer[1]), "peak_resident_gib": float(answer[2])}
    return result


# Dense graphs: estimates against exact counts -------------------------------------------------------------------------


def errors_of(found: np.ndarray, truth: PathCounts) -> dict[str, dict[str, float]]:
    """Mean and largest absolute error of f, and cells wrongly zero in 1,000, at every length that is known."""
    errors = {}
    for length, status in enumerate(truth.status, 1):
        if status == "exact":
            expected = truth.counts[length - 1]
            difference = np.abs(scale_counts(found[length - 1], **SBM) - scale_counts(expected, **SBM))
            wrong = (found[length - 1] == 0) & (expected > 0)
            errors[str(length)] = {
                "mean": difference.mean(),
                "max": difference.max(),
                "wrongly_zero_per_1000": 1000 * wrong.mean(),
                "recall": found[length - 1].sum() / max(expected.sum(), 1),
            }
    return errors


def average(parts: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Means over graphs, at the lengths known for all of them; of maxima the maximum."""
    lengths = [length for length in parts[0] if all(length in part for part in parts)]
    return {
        length: {
            key: float((np.max if key == "max" else np.mean)([part[length][key] for part in parts]))
            for key in parts[0][length]
        }
        for length in lengths
    }


def against_truth(
    graphs: GraphArrays, max_length: int, methods: dict[str, dict[str, Any]], truth_work: int, repeats: int = 1
) -> dict[str, Any]:
    """Error and time per graph of each method, given as options of count_simple_paths, on the same graphs."""
    truths, truth_s = [], 0.0
    for edges, n in (one_graph(graphs, g) for g in range(size(graphs))):
        truth, seconds = clock(
            lambda e=edges, n=n: count_simple_paths(e, n, max_length, method="exact", max_work=truth_work)
        )
        truths.append(truth)
        truth_s += seconds
    result: dict[str, Any] = {
        "graphs": size(graphs),
        "max_length": max_length,
        "lengths_known": min(truth.status.count("exact") for truth in truths),
        "truth_s_per_graph": truth_s / size(graphs),
    }
    for name, options in methods.items():
        errors, seconds, statuses = [], [], []
        for g in range(size(graphs)):
            edges, n = one_graph(graphs, g)
            found = None
            for _ in range(repeats):
                found, cpu = clock(lambda e=edges, n=n, o=options: count_simple_paths(e, n, max_length, **o))
                seconds.append(cpu)
            errors.append(errors_of(found.counts, truths[g]))
            statuses.append(found.status.count("exact"))
        result[name] = {
            "options": options,
            "s_per_graph": statistics.mean(seconds),
            "exact_lengths": [min(statuses), max(statuses)],
            "error_of_f": average(errors),
        }
    return result


def agreement(graphs: GraphArrays, max_length: int, budget: int) -> dict[str, Any]:
    """Two independent runs, by length: share of estimated cells that differ by at most 1.96 standard errors of it."""
    inside: dict[int, list[float]] = {}
    for g in range(size(graphs)):
        edges, n = one_graph(graphs, g)
        one, two = (
            count_simple_paths(edges, n, max_length, method="sampled", budget=budget, seed=seed) for seed in (1, 2)
        )
        error = np.hypot(one.standard_error, two.standard_error)
        for length in range(1, max_length + 1):
            cells = np.triu(error[length - 1] > 0)
            if cells.any():
                z = np.abs(one.counts[length - 1] - two.counts[length - 1])[cells] / error[length - 1][cells]
                inside.setdefault(length, []).append(float((z < 1.96).mean()))
    return {"budget": budget, "within_1.96": {str(k): statistics.mean(v) for k, v in sorted(inside.items())}}


METHODS = {
    "auto": {"method": "auto"},
    "sampled": {"method": "sampled"},
    "sampled_fifth_of_budget": {"method": "sampled", "budget": 20_000_000},
}


def bench_sbm(graphs: GraphArrays, args: argparse.Namespace) -> dict[str, Any]:
    """PATTERN or CLUSTER, K 16: estimates, and the paper's algorithm in ours and in the authors' code."""
    result = against_truth(graphs, 16, {**METHODS, "dag": {"method": "dag", **PAPER}}, TRUTH_WORK)
    result["agreement"] = agreement(graphs, 16, 100_000_000)
    if args.authors:
        result["authors"] = bench_authors(select(graphs, range(args.authors_graphs)), 16, args.authors)
    return result


def bench_authors(graphs: GraphArrays, max_length: int, clone: Path) -> dict[str, Any]:
    """The authors' code and ours on the same graphs, at the paper's parameters."""
    theirs_s, ours_s, auto_s, theirs_e, ours_e, auto_e = [], [], [], [], [], []
    for g in range(size(graphs)):
        edges, n = one_graph(graphs, g)
        truth = count_simple_paths(edges, n, max_length, method="exact", max_work=TRUTH_WORK)
        theirs, seconds = clock(lambda e=edges, n=n: authors_counter.count(clone, e, n, max_length, **PAPER))
        theirs_s.append(seconds)
        theirs_e.append(errors_of(theirs, truth))
        ours, seconds = clock(lambda e=edges, n=n: count_simple_paths(e, n, max_length, method="dag", **PAPER))
        ours_s.append(seconds)
        ours_e.append(errors_of(ours.counts, truth))
        auto, seconds = clock(lambda e=edges, n=n: count_simple_paths(e, n, max_length, method="auto"))
        auto_s.append(seconds)
        auto_e.append(errors_of(auto.counts, truth))
    return {
        "graphs": size(graphs),
        "authors": {"s_per_graph": statistics.mean(theirs_s), "error_of_f": average(theirs_e)},
        "dag": {"s_per_graph": statistics.mean(ours_s), "error_of_f": average(ours_e)},
        "auto": {"s_per_graph": statistics.mean(auto_s), "error_of_f": average(auto_e)},
        "authors_over_dag": statistics.mean(theirs_s) / statistics.mean(ours_s),
        "authors_over_auto": statistics.mean(theirs_s) / statistics.mean(auto_s),
    }


def bench_pattern(args: argparse.Namespace) -> dict[str, Any]:
    """PATTERN from its generator."""
    return bench_sbm(sources.pattern(args.graphs, args.seed), args)


def bench_cluster(args: argparse.Namespace) -> dict[str, Any]:
    """CLUSTER from its generator."""
    return bench_sbm(sources.cluster(args.graphs, args.seed), args)


def bench_mnist(args: argparse.Namespace) -> dict[str, Any]:
    """MNIST superpixels, K 17, symmetrised."""
    graphs = sources.mnist(args.data, args.graphs)
    return {**against_truth(graphs, 17, METHODS, TRUTH_WORK), "agreement": agreement(graphs, 17, 100_000_000)}


def bench_cifar10(args: argparse.Namespace) -> dict[str, Any]:
    """CIFAR10 superpixels, K 17, symmetrised."""
    graphs = sources.cifar10(args.data, args.graphs)
    return {**against_truth(graphs, 17, METHODS, TRUTH_WORK), "agreement": agreement(graphs, 17, 100_000_000)}


def bench_small(args: argparse.Namespace) -> dict[str, Any]:
    """Graphs of 18 nodes, same families and densities, every length known: a test of `sampled` alone."""
    rng = np.random.default_rng(args.seed)
    methods = {name: options for name, options in METHODS.items() if options["method"] == "sampled"}
    blocks, pixels = [], []
    for _ in range(args.graphs):
        side = np.repeat([0, 1, 2], 6)
        upper = np.triu(rng.random((18, 18)) < np.where(side[:, None] == side, 0.5, 0.35), 1)
        blocks.append((np.argwhere(upper).T, 18))
        blocks.append(
            (np.argwhere(np.triu(rng.random((18, 18)) < np.where(side[:, None] == side, 0.55, 0.25), 1)).T, 18)
        )
        pixels.append((sources.connect_superpixels(rng.random((18, 2)))[0], 18))
    everything = 10**12
    return {
        "sbm": against_truth(flatten(blocks), 16, methods, everything),
        "superpixels": against_truth(flatten(pixels), 17, methods, everything),
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "calls": bench_calls,
    "zinc": bench_zinc,
    "peptides": bench_peptides,
    "pcqm4mv2": bench_pcqm4mv2,
    "pattern": bench_pattern,
    "cluster": bench_cluster,
    "mnist": bench_mnist,
    "cifar10": bench_cifar10,
    "small": bench_small,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT / "datasets" / "benchmarks", help="folder of graphs")
    parser.add_argument("--authors", type=Path, help="clone of the authors' counter")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run, with commas")
    parser.add_argument("--sample", type=at_least_one, default=400, help="molecules that the libraries see")
    parser.add_argument("--peptides", type=at_least_one, default=300, help="peptides that the plain search sees")
    parser.add_argument("--graphs", type=at_least_one, default=8, help="dense graphs of each kind")
    parser.add_argument(
        "--authors-graphs", type=at_least_one, default=2, help="dense graphs that the authors' code sees"
    )
    parser.add_argument("--seed", type=int, default=0, help="of samples and generated graphs")
    parser.add_argument("--repeats", type=at_least_one, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/counting.json")
    args = parser.parse_args()
    check_out(parser, args.out)
    if args.authors and not (args.authors / authors_counter.SOURCE).is_file():
        parser.error(f"--authors: {args.authors} holds no {authors_counter.SOURCE}; name a clone of the authors' code")
    parts = args.only.split(",")
    for name in parts:
        if name not in PARTS:
            parser.error(f"--only: unknown part '{name}'. Known: {', '.join(PARTS)}")
    result = json.loads(args.out.read_text()) if args.out.exists() else {}
    compile_counters(COUNTERS)
    for name in parts:
        begin = time.perf_counter()
        result[name] = {"environment": environment(), "repeats": args.repeats, **PARTS[name](args)}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"== {name}: {time.perf_counter() - begin:.0f} s, peak of this process {peak:.1f} GiB")
        print(json.dumps({k: v for k, v in result[name].items() if k != "environment"}, indent=1))
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    result["compile_s"] = compile_seconds()
    args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
