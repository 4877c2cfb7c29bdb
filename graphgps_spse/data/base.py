"""The types that every data set fills and every model reads: flat arrays of graphs, and batches of them.

Shape letters: G graphs of a split, B graphs of a batch, N nodes, E directed edges, P = sum of n*n node pairs,
F features, T targets, C channels of an encoding. N, E and P count over all the graphs at hand.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphgps_spse.errors import DataError

_CHUNK_ROWS = 1 << 15  # rows checked or hashed at a time: arrays on disk stay there, and chunks stay in the CPU's cache
_NARROW = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
_WIDE = (torch.int64, torch.float32, torch.float64)


class InputSpec(NamedTuple):
    """What a feature column holds: `kind` "types" (one integer below `size`), "floats" (`size` columns) or "ogb"."""

    kind: str
    size: int


class EncodedSplit(Protocol):
    """An encoding of a split: in memory, on disk, or computed by the process that builds the batch."""

    def rows(
        self, index_B: Tensor, node_ptr: Tensor, edge_ptr: Tensor, edge_index_2E: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return pair rows [P, C] and node rows [N, C] of the graphs of a batch; None for what the encoding lacks.

        `index_B` are the numbers of the graphs in their split; offsets count from 0 within the batch and node numbers
        within each graph.
        """


@dataclass(frozen=True)
class DatasetSpec:
    """What a model and a task must know of a data set before any of its graphs is read."""

    name: str
    level: str
    """"graph" or "node": what carries a target."""
    task: str
    """Name in the tasks registry; it brings the loss, the metrics and the width of the output."""
    num_targets: int
    """Columns of y."""
    num_classes: int
    """Classes of each target; 0 for regression."""
    metric: str
    """The benchmark's metric, which picks the best epoch."""
    node_input: InputSpec
    edge_input: InputSpec
    directed: bool = False
    target_names: tuple[str, ...] = ()
    may_miss_targets: bool = False
    """Whether targets may be NaN, for unknown. Losses and metrics leave those out; otherwise none is allowed."""


class MappedFile(NamedTuple):
    """A file whose pages are arrays of a split."""

    path: Path
    inode: int
    size: int

    @classmethod
    def of(cls, path: Path) -> "MappedFile":
        """Return a file as it is now."""
        found = path.stat()
        return cls(path, found.st_ino, found.st_size)

    def check(self) -> None:
        """Raise DataError if the file has been cut: the system ends a process that reads pages which are gone.

        A file that was moved, deleted or replaced keeps its pages as long as it is mapped.
        """
        try:
            found = self.path.stat()
        except OSError:
            return
        if found.st_ino == self.inode and found.st_size < self.size:
            raise DataError(
                f"{self.path} was cut from {self.size} to {found.st_size} bytes while it was in use. Move its folder "
                "away and run the same command again: it is written anew"
            )


@dataclass(frozen=True)
class GraphBatch:
    """Graphs of one step, laid out for pair models: sorted by size, every tensor in that order.

    Row b of a graph-level prediction belongs to graph `index_B[b]` of the split. The n*n pairs of a graph are
    contiguous rows: pair (i, j), i the query and j the key of attention, is row i * n + j of its graph's block.
    """

    sizes: tuple[int, ...]
    """Nodes of each graph, ascending; Python integers, as layouts are built on the host."""
    index_B: Tensor
    x_NF: Tensor
    edge_index_2E: Tensor
    """Row 0 sender, row 1 receiver; node numbers count through the batch."""
    edge_attr_EF: Tensor | None
    y: Tensor
    """[B, T] for graph-level tasks, [N, T] for node-level ones."""
    log_deg_N: Tensor
    """ln(1 + out-degree), float32."""
    pair: dict[str, Tensor] = field(default_factory=dict)
    """[P, C] for each encoding of pairs, by its name."""
    node: dict[str, Tensor] = field(default_factory=dict)
    """[N, C] for each encoding of nodes, by its name."""

    @property
    def num_graphs(self) -> int:
        """B."""
        return len(self.sizes)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "GraphBatch":
        """Return the batch with every tensor on `device`."""
        return self._map(lambda t: t.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "GraphBatch":
        """Return the batch in page-locked memory (torch's DataLoader calls this by name)."""
        return self._map(lambda t: t.pin_memory())

    def _map(self, move: Callable[[Tensor], Tensor]) -> "GraphBatch":
        moved: dict[str, Any] = {k: move(v) for k, v in vars(self).items() if isinstance(v, Tensor)}
        for name in ("pair", "node"):
            moved[name] = {k: move(v) for k, v in getattr(self, name).items()}
        return replace(self, **moved)


@dataclass(frozen=True)
class GraphDataset:
    """One split in flat tensors: graph g owns nodes node_ptr[g]:node_ptr[g+1] and edges edge_ptr[g]:edge_ptr[g+1].

    `edge_index_2E` counts nodes within each graph. Integers may be stored narrow (uint8, int16, ..) and arrays may be
    memory-mapped; a batch holds int64 and float32 (float64 stays). Raises DataError where a graph cannot be used.
    """

    name: str
    split: str
    x_NF: Tensor
    edge_index_2E: Tensor
    edge_attr_EF: Tensor | None
    y: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor
    level: str = "graph"
    encodings: dict[str, EncodedSplit] = field(default_factory=dict)
    """Encodings by name."""
    may_miss_targets: bool = False
    """Whether targets may be NaN, for unknown."""
    kept_fingerprint: str = ""
    """The fingerprint, where it was computed when the arrays were read and they were checked when they were written."""
    files: tuple[MappedFile, ...] = ()
    """What arrays are memory-mapped from."""

    def __post_init__(self) -> None:
        if not self.kept_fingerprint:
            self._check()

    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    @property
    def sizes_G(self) -> Tensor:
        """Nodes of each graph, int64."""
        return self.node_ptr.diff()

    def _where(self, row: int, ptr: Tensor) -> str:
        graph = int(torch.searchsorted(ptr, row, right=True)) - 1
        return f"{self.name}, {self.split} split, graph {graph}"

    def _check(self) -> None:
        if self.node_ptr.numel() < 2:
            raise DataError(f"{self.name}, {self.split} split: no graphs at all")
        self._check_offsets()
        empty = (self.sizes_G < 1).nonzero()
        if len(empty):
            raise DataError(f"{self.name}, {self.split} split, graph {int(empty[0])}: no nodes; drop it from the data")
        if self.edge_index_2E.is_floating_point():
            raise DataError(f"{self.name}, {self.split} split: edges hold {self.edge_index_2E.dtype}, not integers")
        graph_ptr = torch.arange(len(self) + 1)
        y_ptr = graph_ptr if self.level == "graph" else self.node_ptr
        columns = [("edges", self.edge_index_2E.T, self.edge_ptr), ("node features", self.x_NF, self.node_ptr)]
        columns.append(("targets", self.y, y_ptr))
        if self.edge_attr_EF is not None:
            columns.append(("edge features", self.edge_attr_EF, self.edge_ptr))
        for what, values, ptr in columns:
            self._check_column(what, values, ptr)
        self._check_edges()

    def _check_offsets(self) -> None:
        num_edges = self.edge_index_2E.shape[1]
        for what, ptr, last in (("node_ptr", self.node_ptr, len(self.x_NF)), ("edge_ptr", self.edge_ptr, num_edges)):
            steady = ptr.dtype == torch.int64 and ptr.shape == (len(self) + 1,) and bool((ptr.diff() >= 0).all())
            if not steady or (int(ptr[0]), int(ptr[-1])) != (0, last):
                raise DataError(
                    f"{self.name}, {self.split} split: {what} must rise from 0 to {last} in {len(self) + 1} int64 steps"
                )

    def _check_edges(self) -> None:
        first, last_graph = 0, len(self)
        while first < last_graph:  # as many graphs as have a chunk of edges, or one
            most = self.edge_ptr[first] + _CHUNK_ROWS
            last = max(first + 1, int(torch.searchsorted(self.edge_ptr, most, right=True)) - 1)
            begin, end = self.edge_ptr[first].item(), self.edge_ptr[last].item()
            edges_2E, size_G = self.edge_index_2E[:, begin:end], self.node_ptr[first : last + 1].diff()
            size_E = size_G.repeat_interleave(self.edge_ptr[first : last + 1].diff())
            bad = ((edges_2E < 0) | (edges_2E >= size_E)).any(0).nonzero()
            if len(bad):
                edge, size = int(bad[0]), int(size_E[bad[0]])
                where, ends = self._where(int(begin) + edge, self.edge_ptr), tuple(edges_2E[:, edge].tolist())
                raise DataError(f"{where}: edge {ends} points outside its {size} nodes, numbered from 0")
            first = last

    def _check_column(self, what: str, values: Tensor, ptr: Tensor) -> None:
        rows, expected = values.shape[0], int(ptr[-1])
        if rows != expected:
            raise DataError(f"{self.name}, {self.split} split: {rows} rows of {what}, expected {expected}")
        if values.dtype not in _NARROW + _WIDE:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in _NARROW + _WIDE)
            raise DataError(f"{self.name}, {self.split} split: {what} are {values.dtype}; known are {known}")
        if not values.is_floating_point():
            return
        is_bad = torch.isinf if what == "targets" and self.may_miss_targets else _is_not_finite
        for first, chunk in _chunks(values):
            bad = is_bad(chunk.reshape(len(chunk), -1)).any(1).nonzero()
            if len(bad):
                row = first + int(bad[0])
                raise DataError(f"{self._where(row, ptr)}: {what} hold a value that is not finite (row {row})")

    def fingerprint(self) -> str:
        """Return a SHA-256 over graphs, features and targets, for records and caches; the same however stored."""
        return self.kept_fingerprint or self.compute_fingerprint()

    def compute_fingerprint(self) -> str:
        """Return the fingerprint of the arrays as they are now, reading all of them in chunks."""
        digest = hashlib.sha256(f"{self.name}/{self.split}/{self.level}".encode())
        for tensor in (self.node_ptr, self.edge_ptr, self.edge_index_2E, self.x_NF, self.edge_attr_EF, self.y):
            if tensor is None:
                continue
            digest.update(f"{_widened(tensor[:0]).dtype}{tuple(tensor.shape)}".encode())
            for row in tensor if tensor is self.edge_index_2E else (tensor,):
                for _, chunk in _chunks(row):
                    digest.update(_widened(chunk).contiguous().numpy().data)
        return digest.hexdigest()

    def batch(self, indices: Sequence[int]) -> GraphBatch:
        """Return the graphs `indices` as one batch, sorted by size (ties keep the order given).

        Raises DataError where the files behind the arrays were cut.
        """
        for file in self.files:
            file.check()
        index_B = torch.as_tensor(indices, dtype=torch.int64)
        index_B = index_B[torch.argsort(count_rows(self.node_ptr, index_B), stable=True)]
        sizes_B, edges_B = count_rows(self.node_ptr, index_B), count_rows(self.edge_ptr, index_B)
        node_rows, edge_rows = flat_rows(self.node_ptr, index_B), flat_rows(self.edge_ptr, index_B)
        local_2E = self.edge_index_2E[:, edge_rows].to(torch.int64)
        node_offset_B = sizes_B.cumsum(0) - sizes_B
        edge_index_2E = local_2E + node_offset_B.repeat_interleave(edges_B)
        degree_N = torch.bincount(edge_index_2E[0], minlength=len(node_rows))
        pair: dict[str, Tensor] = {}
        node: dict[str, Tensor] = {}
        for name, encoding in self.encodings.items():
            pair_PC, node_NC = encoding.rows(index_B, _offsets(sizes_B), _offsets(edges_B), local_2E)
            pair |= {} if pair_PC is None else {name: pair_PC}
            node |= {} if node_NC is None else {name: node_NC}
        return GraphBatch(
            sizes=tuple(sizes_B.tolist()),
            index_B=index_B,
            x_NF=_widened(self.x_NF[node_rows]),
            edge_index_2E=edge_index_2E,
            edge_attr_EF=None if self.edge_attr_EF is None else _widened(self.edge_attr_EF[edge_rows]),
            y=_widened(self.y[index_B if self.level == "graph" else node_rows]),
            log_deg_N=torch.log1p(degree_N.to(torch.float32)),
            pair=pair,
            node=node,
        )


def _widened(values: Tensor) -> Tensor:
    """Return integers as int64 and floats as float32, or float64 where they are."""
    if values.dtype in _WIDE:
        return values
    return values.to(torch.float32 if values.is_floating_point() else torch.int64)


def _is_not_finite(values: Tensor) -> Tensor:
    return ~torch.isfinite(values)


def _chunks(values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the first row and the rows of one part of an array after the other."""
    for first in range(0, len(values), _CHUNK_ROWS):
        yield first, values[first : first + _CHUNK_ROWS]


def count_rows(ptr: Tensor, index_B: Tensor) -> Tensor:
    """Rows that each of the graphs `index_B` has in a flat array with offsets `ptr`."""
    return ptr[index_B + 1] - ptr[index_B]


def _offsets(count_B: Tensor) -> Tensor:
    """Offsets of runs of rows: [B + 1] int64, from 0."""
    return torch.cat([count_B.new_zeros(1), count_B.cumsum(0)])


def flat_rows(ptr: Tensor, index_B: Tensor) -> Tensor:
    """Rows of the graphs `index_B` in a flat array with offsets `ptr`, graph after graph."""
    start_B, count_B = ptr[index_B], ptr[index_B + 1] - ptr[index_B]
    first_B = count_B.cumsum(0) - count_B
    return torch.arange(int(count_B.sum())) + (start_B - first_B).repeat_interleave(count_B)
