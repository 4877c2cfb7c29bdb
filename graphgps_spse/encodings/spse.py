"""Simple path structural encoding (SPSE, the paper): f(S_k) of all pairs, S_k counting simple paths of k edges."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from graphgps_spse.counting.graph import pair_offsets
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import chunk_bounds, for_each_chunk
from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.encodings.base import (
    MEMORY,
    ON_THE_FLY,
    STORE,
    Encoding,
    EncodingArrays,
    GraphArrays,
    Place,
    Progress,
)
from graphgps_spse.encodings.packing import TABLE_SIZE
from graphgps_spse.encodings.request import CountRequest, describe_status, estimate, spread_by_size
from graphgps_spse.encodings.scaling import check_counts_fit, check_scaling, scale_counts, scale_table
from graphgps_spse.encodings.store import CountStore, StoreOptions, may_hold
from graphgps_spse.encodings.stored import StoredCounts, StoredPairs
from graphgps_spse.encodings.units import as_duration, as_size
from graphgps_spse.encodings.walks import SCRATCH_BYTES_OF_PAIR, walk_probabilities
from graphgps_spse.errors import ConfigError
from graphgps_spse.jit import kernel
from graphgps_spse.registry import encodings

NODE_PES = ("rwse", "cycles", "spse_diag", "none")
DEFAULT_METHOD = "auto"

_CHUNK_PAIRS = 1 << 16
_CHEAP_WORK = 4  # for each count: some times what it takes to read one; molecules take about 1, SBM graphs hundreds


@encodings.register("SPSE")
class SPSE(Encoding):
    """Channels [I, f(S_1), .., f(S_K)] of all pairs, f(x) = alpha * g^n(x) + beta with g(x) = ln(1 + x)."""

    name: ClassVar[str] = "SPSE"
    has_identity: ClassVar[bool] = True
    size_key: ClassVar[str] = "posenc_SPSE.max_length"

    def __init__(
        self,
        *,
        max_length: int,
        num_channels: int = 0,
        alpha: float = 0.5,
        beta: float = 0.0,
        n: int = 1,
        node_pe: str = "rwse",
        method: str = DEFAULT_METHOD,
        directed: bool = False,
        **options: Any,
    ) -> None:
        """`max_length` is K; `num_channels` counts the identity and is K + 1 if 0. `options` are those of CountOptions.

        A model with more channels reads f(0) in those beyond K, with fewer it reads the first ones. `n` says how
        often g is applied. `node_pe` is what nodes get: "rwse", the random walk diagonal that RRWP gives them;
        "cycles", f of the number of simple cycles of k + 1 edges through the node; "spse_diag", the diagonal of the
        pairs, which is constant; "none". Raises ConfigError for a value that makes no sense.
        """
        check_options(max_length, alpha, beta, n, prefix="posenc_SPSE.")
        if num_channels < 0:
            raise ConfigError(f"posenc_SPSE.ksteps: must be at least 1, or 0 for max_length + 1; got {num_channels}")
        if node_pe not in NODE_PES:
            raise ConfigError(f"posenc_SPSE.node_pe: unknown value '{node_pe}'. Known: {', '.join(NODE_PES)}")
        request = CountRequest.of(method, max_length, directed, prefix="posenc_SPSE.", **options)
        self.max_length, self.alpha, self.beta, self.n = max_length, float(alpha), float(beta), n
        self.node_pe, self.method, self.directed, self.options = node_pe, method, directed, request.options
        self.dim_pair = num_channels or max_length + 1
        self.dim_node = 0 if node_pe == "none" else self.dim_pair

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_SPSE. All options of counting are checked; those that the method does not read do nothing.

        So one file can carry the paper's R, D_dfs and N and be switched to them by its method.
        """
        section = cfg.posenc_SPSE
        return cls(
            max_length=section.max_length,
            num_channels=section.ksteps,
            alpha=section.alpha,
            beta=section.beta,
            n=section.n,
            node_pe=section.node_pe,
            method=section.method,
            directed=section.directed,
            **{field.name: getattr(section, field.name) for field in fields(CountOptions)},
        )

    @property
    def num_lengths(self) -> int:
        """Lengths that are counted: those that the channels hold."""
        return min(self.max_length, self.dim_pair - 1)

    def request(self) -> CountRequest:
        """Return what is asked of the counting engine."""
        return CountRequest(self.method, self.num_lengths, self.directed, self.options)

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes for one graph: the rows, and its counts in float64 or the matrices of `node_pe: rwse`."""
        scratch = max(8 * self.num_lengths, SCRATCH_BYTES_OF_PAIR if self.node_pe == "rwse" else 0)
        return super().bytes_of_graph(num_nodes) + scratch * num_nodes**2

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph; pair (i, j) counts the paths from the receiver i to j.

        Raises DataError, naming the graph and the length, where the method gives no count.
        """
        node_ptr, pair_ptr = np.asarray(graphs.node_ptr, dtype=np.int64), pair_offsets(graphs.node_ptr)
        pair = np.empty((int(pair_ptr[-1]), self.dim_pair), np.float32)
        cycles = self._no_cycles(node_ptr)
        table = scale_table(self.alpha, self.beta, self.n, TABLE_SIZE)
        status_GK, work = np.zeros((len(node_ptr) - 1, 0), np.int8), 0

        def write(first: int, last: int, chunk: ChunkCounts) -> None:
            rows = pair[pair_ptr[first] : pair_ptr[last]]
            write_scaled(chunk.counts, table, self.alpha, self.beta, self.n, 1, rows)
            if self.node_pe == "cycles":
                _count_cycles(chunk.counts, node_ptr, first, last, self.directed, cycles)

        if self.num_lengths:
            status_GK, work = self.request().map(graphs, write, num_threads=num_threads, progress=progress)
            check_counts_fit(pair[:, 1 : 1 + self.num_lengths], self.n, prefix="posenc_SPSE.")
        pair[:, 1 + self.num_lengths :] = table[0]
        pair[:, 0] = 0.0
        pair[_diagonal_rows(node_ptr, pair_ptr), 0] = 1.0
        return EncodingArrays(pair, self._nodes(graphs, cycles, table[0], num_threads), self._record(status_GK, work))

    def store_of(self, graphs: GraphArrays, *, name: str, root: Path) -> CountStore | None:
        """Return the store of the counts of a split, filled or not; None where nothing is counted."""
        return CountStore(root, name, graphs, self.request()) if self.num_lengths else None

    def place(self, graphs: GraphArrays, *, name: str, store: StoreOptions) -> Place:
        """Choose between memory, the store and computing on the fly; what counting costs is predicted from a sample.

        What is in the store is read. Else arrays above `store.min_gib` are computed on the fly where counting costs
        little more than reading counts, as with molecules. What is large or slow otherwise goes through the store.
        """
        if not self.num_lengths or store.mode == "never":
            return super().place(graphs, name=name, store=store)
        if store.mode == "always":
            return Place(STORE, "store.mode is always")
        if may_hold(store.dir, graphs, self.request()):
            kept = self.store_of(graphs, name=name, root=store.dir)
            if kept is not None and kept.find_files():
                return Place(STORE, f"{kept.path} is there")
        cost, gib = estimate(graphs, self.request()), self.gib(graphs)
        num_counts = int(pair_offsets(graphs.node_ptr)[-1]) * self.num_lengths
        if gib > store.min_gib and not cost.at_least and cost.work <= _CHEAP_WORK * num_counts:
            counting = f"counting them all takes one core {as_duration(cost.seconds())}"
            return Place(ON_THE_FLY, f"{as_size(gib * 2**30)} of arrays, above store.min_gib, and {counting}")
        if gib > store.min_gib:
            return Place(STORE, f"{as_size(gib * 2**30)} of arrays, above store.min_gib, and counting is costly")
        if cost.seconds() > store.min_seconds:
            return Place(STORE, f"counting takes one core {as_duration(cost.seconds())}, above store.min_seconds")
        return Place(MEMORY, f"{as_size(gib * 2**30)} of arrays; counting takes one core {as_duration(cost.seconds())}")

    def sample(self, graphs: GraphArrays) -> list[int]:
        """Return up to 64 graphs, evenly spread over the sizes."""
        return spread_by_size(np.diff(graphs.node_ptr)).tolist()

    def provide(
        self,
        graphs: GraphArrays,
        *,
        name: str,
        place: Place,
        store: StoreOptions,
        num_threads: int = 1,
        progress: Progress | None = None,
    ) -> EncodingArrays:
        """Encode the split `name`, by way of the store where `place` says so; else in memory."""
        kept = self.store_of(graphs, name=name, root=store.dir) if place.where == STORE else None
        if kept is None:
            return self.compute(graphs, num_threads=num_threads, progress=progress)
        counts = kept.complete(num_threads=num_threads, progress=progress)
        pairs = StoredPairs(counts, alpha=self.alpha, beta=self.beta, n=self.n, num_channels=self.dim_pair)
        pairs.rows_of([0])  # compiled here and not in every loader process
        cycles = self._no_cycles(graphs.node_ptr)
        if self.node_pe == "cycles":
            self._stored_cycles(graphs, counts, cycles, num_threads)
        empty = float(scale_counts(0, self.alpha, self.beta, self.n))
        stored = {"folder": kept.path.name, "max_error_of_ln": counts.max_error()}
        record = self._record(counts.status_GK(), counts.work()) | {"stored": stored}
        return EncodingArrays(pairs, self._nodes(graphs, cycles, empty, num_threads), record)

    def _no_cycles(self, node_ptr: np.ndarray) -> np.ndarray:
        return np.zeros((int(node_ptr[-1]), self.dim_pair) if self.node_pe == "cycles" else (0, 0))

    def _stored_cycles(self, graphs: GraphArrays, counts: StoredCounts, cycles: np.ndarray, num_threads: int) -> None:
        node_ptr = np.asarray(graphs.node_ptr, dtype=np.int64)

        def process(first: int, last: int) -> None:
            for graph in range(first, last):
                _count_cycles(counts.counts(graph), node_ptr, graph, graph + 1, self.directed, cycles)

        for_each_chunk(process, chunk_bounds(pair_offsets(node_ptr), _CHUNK_PAIRS), num_threads=num_threads)

    def _nodes(self, graphs: GraphArrays, cycles: np.ndarray, empty: float, num_threads: int) -> np.ndarray | None:
        if self.node_pe == "none":
            return None
        if self.node_pe == "rwse":
            return walk_probabilities(graphs, self.dim_pair, pairs=False, num_threads=num_threads)[1]
        if self.node_pe == "cycles":
            node = scale_counts(cycles, self.alpha, self.beta, self.n).astype(np.float32)
        else:
            node = np.full((int(graphs.node_ptr[-1]), self.dim_pair), empty, np.float32)
        node[:, 0] = 1.0
        return node

    def _record(self, status_GK: np.ndarray, work: int) -> dict[str, Any]:
        options = ("max_length", "alpha", "beta", "n", "node_pe", "method", "directed")
        return {
            "encoding": self.name,
            **{option: getattr(self, option) for option in options},
            **self.options,
            "channels": self.dim_pair,
            **describe_status(status_GK),
            "work": work,
        }


def _diagonal_rows(node_ptr: np.ndarray, pair_ptr: np.ndarray) -> np.ndarray:
    """Return the rows of the pairs (i, i) of all graphs, [N]."""
    sizes: np.ndarray = np.diff(node_ptr)
    local = np.arange(node_ptr[-1]) - np.repeat(node_ptr[:-1], sizes)
    return np.repeat(pair_ptr[:-1], sizes) + local * (np.repeat(sizes, sizes) + 1)


def check_options(max_length: int, alpha: float, beta: float, n: int, *, prefix: str = "") -> None:
    """Raise ConfigError, naming the option after `prefix`, unless these are options of an encoding of path counts."""
    for key, value, minimum in (("max_length", max_length, 1), ("n", n, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(f"{prefix}{key}: must be a whole number of at least {minimum}; got {value!r}")
    check_scaling(alpha, beta, n, prefix=prefix)


@kernel
def write_scaled(counts_PK, table, alpha, beta, n, first_column, out_PC):
    """Write f of every count to `out_PC`, from `first_column` on; `table` holds f(0), f(1), .. in float32."""
    for p in range(counts_PK.shape[0]):
        for k in range(counts_PK.shape[1]):
            count = counts_PK[p, k]
            if 0.0 <= count < len(table) and count == np.floor(count):
                out_PC[p, first_column + k] = table[int(count)]
            else:
                for _ in range(n):
                    count = math.log1p(count)
                out_PC[p, first_column + k] = alpha * count + beta


@kernel
def _count_cycles(counts_PK, node_ptr, first, last, directed, cycles_NC):
    """Count the simple cycles through each node: column k, those of k + 1 edges, closed by an edge back to it.

    Every undirected cycle is met in both directions, and an edge there and back is none; a directed one is.
    """
    share, shortest = (1.0, 1) if directed else (0.5, 2)
    pair = 0
    for g in range(first, last):
        n = node_ptr[g + 1] - node_ptr[g]
        for i in range(n):
            for j in range(n):
                if counts_PK[pair + j * n + i, 0] > 0.0:
                    for k in range(shortest, counts_PK.shape[1] + 1):
                        cycles_NC[node_ptr[g] + i, k] += share * counts_PK[pair + i * n + j, k - 1]
        pair += n * n
