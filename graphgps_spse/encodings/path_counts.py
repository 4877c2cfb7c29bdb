"""Encodings whose pairs are a function of path counts, and what they ask of the counting engine."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.counting import ENGINE_VERSION, get_counter, map_path_counts
from graphgps_spse.counting.graphs import check_graphs, pair_offsets, simplify
from graphgps_spse.counting.options import READ_BY, CountOptions
from graphgps_spse.counting.parallel import Progress, run_in_turn
from graphgps_spse.counting.records import ChunkCounts, Status, weakest
from graphgps_spse.encodings.base import Cost, Encoding, EncodingArrays, GraphArrays, cut, sample_by_size
from graphgps_spse.encodings.scaling import Scaling, check_counts_fit
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.jit import kernel

_SAMPLED_GRAPHS = 64
_SAMPLED_WORK = 1 << 31  # of all sampled graphs: some seconds
_LEAST_SAMPLE = 8  # graphs that may share it
_SAMPLED_VALUES = 1 << 26  # counts of all sampled graphs: half a GB, of which more would take longer than the counting


Consume = Callable[[int, int, ChunkCounts], None]
"""consume(first, last, chunk) is given the counts of graphs first..last-1."""


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

    def map(self, graphs: GraphArrays, consume: Consume, **options: Any) -> tuple[np.ndarray, int]:
        """Count as `map_path_counts` does, whose `num_threads` and `progress` are `options`; return status_GK and work.

        `consume` should `check` each chunk before it uses the counts.
        """
        return map_path_counts(
            graphs,
            self.max_length,
            consume,
            method=self.method,
            directed=self.directed,
            **self.options,
            **options,
        )

    def check(self, first: int, chunk: ChunkCounts) -> None:
        """Raise DataError, naming graph and length, where the method gives no count; the graphs begin at `first`."""
        missing = np.argwhere(chunk.status_GK == Status.NOT_COUNTED.code)
        if len(missing):
            graph, length = missing[0]
            raise DataError(not_counted(f"graph {first + int(graph)}", int(length) + 1, self.options))


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


class SampledGraph(NamedTuple):
    """A graph that was counted to see what counting a split costs."""

    graph: int
    counts_PK: np.ndarray | None
    """None where it was too much for a sample, or where the method gives no count."""
    work: int
    at_least: bool
    """Whether counting it costs more than `work`."""


def sample_counts(graphs: GraphArrays, request: CountRequest) -> Iterator[SampledGraph]:
    """Count up to 64 graphs, evenly spread over the sizes; takes seconds at most, one large graph a few.

    What is counted and what comes out is the same on every machine.
    """
    counter, options = get_counter(request.method), CountOptions(**request.options)
    spent, num_values = 0, 0
    for graph in sample_by_size(graphs, _SAMPLED_GRAPHS):
        simple = simplify(*check_graphs(*cut(graphs, graph, graph + 1)), directed=request.directed)
        allowed = _SAMPLED_WORK // _LEAST_SAMPLE
        limit, zeros = np.array([allowed]), np.zeros((simple.num_pairs(0, 1), request.max_length))
        chunk = counter(simple, 0, 1, request.max_length, options, limit, run_in_turn, zeros)
        work = allowed if chunk is None else max(chunk.work, 1)
        counted = chunk is not None and not np.isnan(chunk.counts).any()
        yield SampledGraph(graph, chunk.counts if chunk is not None and counted else None, work, chunk is None)
        spent, num_values = spent + work, num_values + zeros.size
        if spent >= _SAMPLED_WORK or num_values >= _SAMPLED_VALUES:
            break


def scale_up(sample: list[SampledGraph], num_graphs: int) -> Cost:
    """Return what counting all graphs costs."""
    work = math.ceil(sum(counted.work for counted in sample) / len(sample) * num_graphs) if sample else 0
    return Cost(work, any(counted.at_least for counted in sample))


class PathCountEncoding(Encoding):
    """An encoding whose pairs hold the identity, then f of path counts, then f(0) in the channels that are left.

    Counting can take far longer than f, so counts may be kept and used with another f.
    """

    has_identity = True

    @property
    @abstractmethod
    def request(self) -> CountRequest | None:
        """The counts that are needed; None where no channel holds any."""

    @property
    @abstractmethod
    def scaling(self) -> Scaling:
        """F."""

    @property
    @abstractmethod
    def nodes_read_counts(self) -> bool:
        """Whether `encode_nodes` reads counts."""

    @abstractmethod
    def encode_nodes(self, graphs: GraphArrays, counts_PK: np.ndarray | None) -> np.ndarray:
        """Return the node part of some graphs, [N, dim_node] float32. Called only where there is one."""

    def compute(self, graphs: GraphArrays) -> EncodingArrays:
        """Count and encode on one thread, as `count_and_encode` does."""
        return self.count_and_encode(graphs)

    def count_and_encode(
        self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None
    ) -> EncodingArrays:
        """Encode graphs; pair (i, j) gets the paths from i to j.

        Raises DataError, naming the graph and the length, where the method gives no count.
        """
        node_ptr, pair_ptr = np.asarray(graphs.node_ptr, np.int64), pair_offsets(graphs.node_ptr)
        pair_PC = np.empty((int(pair_ptr[-1]), self.dim_pair), np.float32)
        node_NC = np.empty((int(node_ptr[-1]), self.dim_node), np.float32)
        request, table, scaling = self.request, self.scaling.table(), self.scaling

        def encode(first: int, last: int, chunk: ChunkCounts) -> None:
            if request is not None:
                request.check(first, chunk)
            own_ptr, rows_PC = node_ptr[first : last + 1] - node_ptr[first], pair_PC[pair_ptr[first] : pair_ptr[last]]
            write_pairs(own_ptr, chunk.counts, table, *scaling, rows_PC)
            check_counts_fit(rows_PC, scaling.n, prefix=f"{self.Options.section}.")
            if self.dim_node:
                own = cut(graphs, first, last)
                node_NC[node_ptr[first] : node_ptr[last]] = self.encode_nodes(own, chunk.counts)

        nodes = node_NC if self.dim_node else None
        if request is None:
            num_graphs = len(node_ptr) - 1
            encode(0, num_graphs, ChunkCounts(np.empty((len(pair_PC), 0)), None, np.empty((num_graphs, 0), np.int8), 0))
            return EncodingArrays(pair_PC, nodes, np.empty((num_graphs, 0), np.int8))
        return EncodingArrays(pair_PC, nodes, *request.map(graphs, encode, num_threads=num_threads, progress=progress))

    def estimate(self, graphs: GraphArrays) -> Cost:
        """Return what counting costs: counted work of a sample, so the same on every machine."""
        if self.request is None:
            return Cost(0)
        return scale_up(list(sample_counts(graphs, self.request)), len(graphs.node_ptr) - 1)


def describe_counts(status_GK: np.ndarray, work: int) -> dict[str, Any]:
    """Return what a record says of counts: the status of each length, and how many graphs are exact."""
    exact = status_GK == Status.EXACT.code
    return {
        "status": [str(status) for status in weakest(status_GK)],
        "graphs_exact_at_every_length": int(exact.all(1).sum()),
        "share_exact": [round(float(share), 6) for share in exact.sum(0) / max(1, len(status_GK))],
        "work": work,
    }


@kernel
def write_pairs(node_ptr, counts_PK, table, alpha, beta, n, pair_PC):
    """Write the channels of some graphs to `pair_PC`: identity, f of each count, f(0) in the rest.

    `node_ptr` begins with 0; `table` holds f(0), f(1), .. in float32.
    """
    num_lengths, pair = counts_PK.shape[1], 0
    for g in range(len(node_ptr) - 1):
        size = node_ptr[g + 1] - node_ptr[g]
        for place in range(size * size):
            pair_PC[pair, 0] = 1.0 if place % (size + 1) == 0 else 0.0
            for k in range(num_lengths):
                count = counts_PK[pair, k]
                if 0.0 <= count < len(table) and count == np.floor(count):
                    pair_PC[pair, 1 + k] = table[int(count)]
                else:
                    for _ in range(n):
                        count = math.log1p(count)
                    pair_PC[pair, 1 + k] = alpha * count + beta
            for k in range(1 + num_lengths, pair_PC.shape[1]):
                pair_PC[pair, k] = table[0]
            pair += 1
