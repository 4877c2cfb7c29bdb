"""What an encoding asks of the counting engine, and what that costs, measured on a few graphs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphgps_spse.counting import ENGINE_VERSION, get_counter, map_path_counts
from graphgps_spse.counting.graph import check_graphs, pair_offsets, simplify, take
from graphgps_spse.counting.options import READ_BY, CountOptions
from graphgps_spse.counting.parallel import one_after_another
from graphgps_spse.counting.records import ChunkCounts, Status, weakest
from graphgps_spse.encodings.base import GraphArrays, Progress
from graphgps_spse.encodings.packing import PackedCounts, pack_counts
from graphgps_spse.errors import ConfigError, DataError

_SAMPLED_GRAPHS = 64
_SAMPLED_WORK = 1 << 31  # of all sampled graphs: some seconds
_LEAST_SAMPLE = 8  # graphs that may share it
_SAMPLED_VALUES = 1 << 26  # counts of all sampled graphs: half a GB, of which more would take longer than the counting


@dataclass(frozen=True)
class CountRequest:
    """Which counts are wanted. `options` are those that the method reads, by name."""

    method: str
    max_length: int
    directed: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, method: str, max_length: int, directed: bool, *, prefix: str = "", **options: Any) -> "CountRequest":
        """Check the method and all `options` given. Raises ConfigError that names the option after `prefix`."""
        if not isinstance(directed, bool | np.bool_):
            raise ConfigError(f"{prefix}directed: must be True or False, got {directed!r}")
        try:
            checked = CountOptions.of(**options)
        except ConfigError as err:
            raise ConfigError(f"{prefix}{err}") from None
        try:
            get_counter(method)
        except ConfigError as err:
            raise ConfigError(f"{prefix}method: {err}") from None
        return cls(method, max_length, bool(directed), {name: getattr(checked, name) for name in options_read(method)})

    def key(self) -> dict[str, Any]:
        """Return what the counts of a graph depend on, as plain types."""
        options = dict(self.options)
        if self.method == "exact":  # exact counts are the same whatever they may cost
            options.pop("max_work", None)
        key = {"engine": ENGINE_VERSION, "method": self.method, "options": options}
        return key | {"max_length": self.max_length, "directed": self.directed}

    def map(
        self,
        graphs: GraphArrays,
        consume: Callable[[int, int, ChunkCounts], None],
        *,
        first_graph: int = 0,
        num_threads: int = 1,
        progress: Progress | None = None,
    ) -> tuple[np.ndarray, int]:
        """Count as `map_path_counts` does. `first_graph` is the number of the first graph in its split.

        Raises DataError, naming the graph and the length, where the method gives no count.
        """

        def check(first: int, last: int, chunk: ChunkCounts) -> None:
            missing = np.argwhere(chunk.status_GK == Status.NOT_COUNTED.code)
            if len(missing):
                graph, length = missing[0]
                where = f"graph {first_graph + first + int(graph)}"
                raise DataError(not_counted(where, int(length) + 1, self.options))
            consume(first, last, chunk)

        return map_path_counts(
            graphs,
            self.max_length,
            check,
            method=self.method,
            directed=self.directed,
            num_threads=num_threads,
            progress=progress,
            **self.options,
        )


def options_read(method: str) -> tuple[str, ...]:
    """Return the names of the options that a method reads; all of them for one that does not say."""
    return READ_BY.get(method) or tuple(CountOptions.__dataclass_fields__)


def not_counted(where: str, length: int, options: dict[str, Any]) -> str:
    """Say that a graph was too much, and what helps."""
    allowed = (
        f"max_work, {options['max_work']:,} units of about a nanosecond" if "max_work" in options else "its budget"
    )
    return (
        f"{where}: counting its paths of {length} edges takes more than {allowed}. "
        "method: auto estimates such lengths; a larger max_work counts them"
    )


def describe_status(status_GK: np.ndarray) -> dict[str, Any]:
    """Return what a record says of the status of each length, and of how many graphs are exact."""
    exact = status_GK == Status.EXACT.code
    num_graphs = max(1, len(status_GK))
    return {
        "status": [str(status) for status in weakest(status_GK)],
        "graphs_exact_at_every_length": int(exact.all(1).sum()),
        "share_exact": [round(float(share), 6) for share in exact.sum(0) / num_graphs],
    }


@dataclass(frozen=True)
class Estimate:
    """What counting a split will cost, from a sample of its graphs."""

    work: int
    """Units of about a nanosecond of one core, all graphs."""
    num_bytes: int
    """Size of the packed counts."""
    at_least: bool
    """Some sampled graph was too much for the sample: the work is higher than said."""

    def seconds(self, num_threads: int = 1) -> float:
        """Predicted seconds on `num_threads` cores."""
        return self.work * 1e-9 / num_threads


def estimate(graphs: GraphArrays, request: CountRequest) -> Estimate:
    """Count up to 64 graphs, evenly spread over the sizes, and scale up; takes seconds at most, one large graph a few.

    What is counted and what comes out is the same on every machine.
    """
    sizes: np.ndarray = np.diff(graphs.node_ptr)
    counter, options = get_counter(request.method), CountOptions(**request.options)
    counted, work, num_bytes, pairs, values, too_much = 0, 0, 0, 0, 0, False
    for graph in spread_by_size(sizes).tolist():
        simple = simplify(*check_graphs(*take(*graphs, graph, graph + 1)), directed=request.directed)
        allowed = _SAMPLED_WORK // _LEAST_SAMPLE
        limit, zeros = np.array([allowed]), np.zeros((int(sizes[graph]) ** 2, request.max_length))
        chunk = counter(simple, 0, 1, request.max_length, options, limit, one_after_another, zeros)
        counted, too_much = counted + 1, too_much or chunk is None
        work += allowed if chunk is None else max(chunk.work, 1)
        if chunk is not None and not np.isnan(chunk.counts).any():
            num_bytes += len(pack_graph(chunk.counts, int(sizes[graph]), graph).payload)
            pairs += int(sizes[graph]) ** 2
        values += zeros.size
        if work >= _SAMPLED_WORK or values >= _SAMPLED_VALUES:
            break
    all_pairs = int(pair_offsets(graphs.node_ptr)[-1])
    # A sample that nothing survived: two bytes for half of the pairs.
    ratio = num_bytes / pairs if pairs else float(request.max_length)
    per_graph = 17 * request.max_length + 32
    return Estimate(
        work=math.ceil(work / counted * len(sizes)) if counted else 0,
        num_bytes=math.ceil(ratio * all_pairs) + per_graph * len(sizes),
        at_least=too_much,
    )


def pack_graph(rows_PK: np.ndarray, num_nodes: int, graph: int) -> PackedCounts:
    """Pack the [n * n, K] counts of a graph. Raises DataError, naming it, for counts that are none."""
    try:
        return pack_counts(rows_PK, num_nodes)
    except ValueError as err:
        raise DataError(f"graph {graph}: its counts cannot be stored, {err}") from err


def spread_by_size(sizes: np.ndarray) -> np.ndarray:
    """Return graphs at even ranks of the order by size, shuffled so that the first few are spread as well."""
    number = min(_SAMPLED_GRAPHS, len(sizes))
    ranks = ((np.arange(number) + 0.5) * len(sizes) / max(1, number)).astype(np.int64)
    return np.random.default_rng(0).permutation(np.argsort(sizes, kind="stable")[ranks])
