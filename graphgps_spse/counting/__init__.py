"""Counting simple paths: numpy and numba, nothing else. The shell that checks, dispatches and explains.

A counter is one function, named in COUNTERS: `(graphs, first, last, max_length, options, limit, spread)` to the
ChunkCounts of graphs first..last-1, or to None if `limit[0]` ([1] int64) bade it stop. It heeds the limit often, since
Ctrl-C lowers it, and hands large parts of one graph to `spread`; results must not depend on how those are run.
"""

import time
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np

from graphgps_spse.counting.exact import count_exact
from graphgps_spse.counting.graph import (
    FlatGraphs,
    SimpleGraphs,
    check_graphs,
    check_max_length,
    simplify,
    single_graph,
)
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import (
    Progress,
    Spread,
    chunk_bounds,
    for_each_chunk,
    one_after_another,
    over_threads,
)
from graphgps_spse.counting.records import ChunkCounts, FlatPathCounts, PathCounts, Status, as_matrices, weakest
from graphgps_spse.errors import ConfigError, DataError

__all__ = [
    "COUNTERS",
    "CountOptions",
    "FlatPathCounts",
    "PathCounts",
    "Status",
    "compile_kernels",
    "count_simple_paths",
    "count_simple_paths_many",
    "map_path_counts",
]

Counter = Callable[[SimpleGraphs, int, int, int, CountOptions, np.ndarray, Spread], ChunkCounts | None]

COUNTERS: dict[str, Counter] = {"exact": count_exact}
"""Counters by the name of their method."""

_NO_LIMIT = np.iinfo(np.int64).max
_QUICK_WORK = 1 << 22  # some milliseconds: what the calling thread may do itself without being deaf to Ctrl-C
_CHUNK_VALUES = 1 << 17  # counts of one chunk: 1 MiB, so that they stay in the cache until they are consumed


def count_simple_paths(
    edge_index: Any,
    num_nodes: int,
    max_length: int,
    *,
    method: str = "exact",
    directed: bool = False,
    num_threads: int = 1,
    **options: Any,
) -> PathCounts:
    """Count the simple paths of 1 to `max_length` edges between all pairs of nodes of one graph.

    `edge_index` [2, E] holds edges as an array, nested list or CPU tensor. Counts are those of the simple graph:
    self-loops are dropped, duplicate edges count once, and edges lead both ways unless `directed`. `options` are the
    fields of CountOptions, by name. Raises DataError for a graph or length that makes no sense, ConfigError for an
    unknown method or option.
    """
    counter, asked = get_counter(method), CountOptions.of(**options)
    max_length = check_max_length(max_length)
    graphs = single_graph(edge_index, num_nodes, directed)
    chunk = counter(graphs, 0, 1, max_length, asked, np.array([_QUICK_WORK]), one_after_another)
    if chunk is None:
        found: list[ChunkCounts] = []
        keep = partial(_keep_chunk, found)
        _map_chunks(counter, graphs, max_length, asked, keep, num_threads, None)
        chunk = found[0]
    counts = np.ascontiguousarray(as_matrices(chunk.counts))
    error = None if chunk.standard_error is None else np.ascontiguousarray(as_matrices(chunk.standard_error))
    return PathCounts(counts, weakest(chunk.status_GK), error, chunk.work, method)


def count_simple_paths_many(
    graphs: FlatGraphs,
    max_length: int,
    *,
    method: str = "exact",
    directed: bool = False,
    num_threads: int = 1,
    progress: Progress | None = None,
    dtype: Any = np.float64,
    **options: Any,
) -> FlatPathCounts:
    """Count as `count_simple_paths` does, for many graphs in flat arrays; equal results for any number of threads.

    `dtype` is that of the result: float32 halves it and rounds counts above 2^24.
    """
    max_length, counter, asked = check_max_length(max_length), get_counter(method), CountOptions.of(**options)
    simple = simplify(*check_graphs(graphs.node_ptr, graphs.edge_ptr, graphs.edge_index), directed=directed)
    counts_PK = np.empty((simple.num_pairs(0, len(simple)), max_length), dtype)
    errors: dict[str, np.ndarray] = {}

    def keep(first: int, last: int, chunk: ChunkCounts) -> None:
        rows = slice(simple.pair_ptr[first], simple.pair_ptr[last])
        counts_PK[rows] = chunk.counts
        if chunk.standard_error is not None:
            errors.setdefault("all", np.zeros_like(counts_PK))[rows] = chunk.standard_error

    status, work = _map_chunks(counter, simple, max_length, asked, keep, num_threads, progress)
    return FlatPathCounts(counts_PK, simple.pair_ptr, status, errors.get("all"), work, method)


def map_path_counts(
    graphs: FlatGraphs,
    max_length: int,
    consume: Callable[[int, int, ChunkCounts], None],
    *,
    method: str = "exact",
    directed: bool = False,
    num_threads: int = 1,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[np.ndarray, int]:
    """Count many graphs and call consume(first, last, chunk) for every chunk of them; return status_GK and work.

    For results that need not be kept as counts: a chunk is about a megabyte and is dropped after the call. Threads
    call `consume` for different graphs at the same time, in no particular order.
    """
    max_length, counter, asked = check_max_length(max_length), get_counter(method), CountOptions.of(**options)
    simple = simplify(*check_graphs(graphs.node_ptr, graphs.edge_ptr, graphs.edge_index), directed=directed)
    return _map_chunks(counter, simple, max_length, asked, consume, num_threads, progress)


def compile_kernels() -> float:
    """Compile the kernels of this package or load them from the cache on disk; return the seconds it took."""
    begin = time.perf_counter()
    path = single_graph([[0, 1], [1, 2]], 3, False)
    for counter in COUNTERS.values():
        counter(path, 0, 1, 2, CountOptions(), np.array([_NO_LIMIT]), one_after_another)
    return time.perf_counter() - begin


def get_counter(method: str) -> Counter:
    """Return the counter of a method. Raises ConfigError that names the nearest and lists all."""
    if method not in COUNTERS:
        close = get_close_matches(str(method), COUNTERS, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ConfigError(f"unknown counting method {method!r}.{hint} Known: {', '.join(sorted(COUNTERS))}")
    return COUNTERS[method]


def _map_chunks(
    counter: Counter,
    graphs: SimpleGraphs,
    max_length: int,
    options: CountOptions,
    consume: Callable[[int, int, ChunkCounts], None],
    num_threads: int,
    progress: Progress | None,
) -> tuple[np.ndarray, int]:
    if num_threads < 1:
        raise DataError(f"num_threads must be at least 1, got {num_threads}")
    limit = np.array([_NO_LIMIT])
    bounds = chunk_bounds(graphs.pair_ptr, max(1, _CHUNK_VALUES // max_length))
    # With fewer chunks than threads the graphs are few and large: one at a time, each over all threads.
    inside = num_threads > 1 and len(bounds) < num_threads
    spread = over_threads(num_threads if inside else 1)
    status_GK = np.zeros((len(graphs), max_length), np.int8)
    work: list[int] = []

    def process(first: int, last: int) -> None:
        chunk = counter(graphs, first, last, max_length, options, limit, spread)
        if chunk is not None:  # None: stopped
            consume(first, last, chunk)
            status_GK[first:last] = chunk.status_GK
            work.append(chunk.work)

    def stop() -> None:
        limit[0] = -1

    for_each_chunk(process, bounds, num_threads=1 if inside else num_threads, progress=progress, stop=stop)
    return status_GK, sum(work)


def _keep_chunk(found: list[ChunkCounts], first: int, last: int, chunk: ChunkCounts) -> None:
    found.append(chunk)
