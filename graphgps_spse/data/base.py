"""The types that every data set fills and every model reads: flat arrays of graphs, and batches of them.

Shape letters: G graphs of a split, B graphs of a batch, N nodes, E directed edges, P = sum of n*n node pairs,
F features, T targets, C channels of an encoding. N, E and P count over all the graphs at hand.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from graphgps_spse.errors import DataError


class InputSpec(NamedTuple):
    """What a feature column holds: `kind` "types" (one integer below `size`), "floats" (`size` columns) or "ogb"."""

    kind: str
    size: int


class PairSource(Protocol):
    """Pair rows of a split that are made when a batch asks for them, in place of one tensor of them all."""

    def rows_of(self, graphs: Sequence[int]) -> Tensor:
        """Return the rows of some graphs, one after the other: [sum of n*n, C] float32."""


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


@dataclass(frozen=True)
class GraphBatch:
    """Graphs of one step, laid out for pair models: sorted by size, every tensor in that order.

    Row b of a graph-level prediction belongs to graph `index_B[b]` of the split. The n*n pairs of a graph are
    contiguous rows, receiver-major: pair (i, j) of graph b is row pair_ptr[b] + i*n + j, i the receiver.
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

    `edge_index_2E` counts nodes within each graph. Raises DataError where a graph cannot be used.
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
    pair: dict[str, Tensor | PairSource] = field(default_factory=dict)
    node: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check()

    def __len__(self) -> int:
        return self.node_ptr.numel() - 1

    @property
    def sizes_G(self) -> Tensor:
        """Nodes of each graph, int64."""
        return self.node_ptr.diff()

    @property
    def pair_ptr(self) -> Tensor:
        """First pair row of each graph, and P at the end: [G + 1] int64."""
        return torch.cat([self.node_ptr.new_zeros(1), self.sizes_G.square().cumsum(0)])

    def _where(self, rows: Tensor, ptr: Tensor) -> str:
        graph = int(torch.searchsorted(ptr, rows.reshape(-1)[0], right=True)) - 1
        return f"{self.name}, {self.split} split, graph {graph}"

    def _check(self) -> None:
        if not len(self):
            raise DataError(f"{self.name}, {self.split} split: no graphs at all")
        self._check_offsets()
        empty = (self.sizes_G < 1).nonzero()
        if len(empty):
            raise DataError(f"{self.name}, {self.split} split, graph {int(empty[0])}: no nodes; drop it from the data")
        edges = torch.arange(self.edge_index_2E.shape[1])
        size_E = self.sizes_G.repeat_interleave(self.edge_ptr.diff())
        bad = edges[((self.edge_index_2E < 0) | (self.edge_index_2E >= size_E)).any(0)]
        if len(bad):
            edge = tuple(self.edge_index_2E[:, bad[0]].tolist())
            where = self._where(bad, self.edge_ptr)
            raise DataError(f"{where}: edge {edge} points outside its {int(size_E[bad[0]])} nodes, numbered from 0")
        graph_ptr = torch.arange(len(self) + 1)
        y_ptr = graph_ptr if self.level == "graph" else self.node_ptr
        columns = [("node features", self.x_NF, self.node_ptr), ("targets", self.y, y_ptr)]
        if self.edge_attr_EF is not None:
            columns.append(("edge features", self.edge_attr_EF, self.edge_ptr))
        for what, values, ptr in columns:
            self._check_column(what, values, ptr)

    def _check_offsets(self) -> None:
        num_edges = self.edge_index_2E.shape[1]
        for what, ptr, last in (("node_ptr", self.node_ptr, len(self.x_NF)), ("edge_ptr", self.edge_ptr, num_edges)):
            steady = ptr.dtype == torch.int64 and len(ptr) == len(self) + 1 and bool((ptr.diff() >= 0).all())
            if not steady or (int(ptr[0]), int(ptr[-1])) != (0, last):
                raise DataError(
                    f"{self.name}, {self.split} split: {what} must rise from 0 to {last} in {len(self) + 1} int64 steps"
                )

    def _check_column(self, what: str, values: Tensor, ptr: Tensor) -> None:
        rows, expected = values.shape[0], int(ptr[-1])
        if rows != expected:
            raise DataError(f"{self.name}, {self.split} split: {rows} rows of {what}, expected {expected}")
        if values.is_floating_point():
            bad = (~torch.isfinite(values.reshape(rows, -1)).all(1)).nonzero()
            if len(bad):
                raise DataError(f"{self._where(bad, ptr)}: {what} hold a value that is not finite (row {int(bad[0])})")

    def fingerprint(self) -> str:
        """Return a SHA-256 over graphs, features and targets, for records and caches."""
        digest = hashlib.sha256(f"{self.name}/{self.split}/{self.level}".encode())
        for tensor in (self.node_ptr, self.edge_ptr, self.edge_index_2E, self.x_NF, self.edge_attr_EF, self.y):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def batch(self, indices: Sequence[int]) -> GraphBatch:
        """Return the graphs `indices` as one batch, sorted by size (ties keep the order given)."""
        index_B = torch.as_tensor(indices, dtype=torch.int64)
        index_B = index_B[torch.argsort(self.sizes_G[index_B], stable=True)]
        sizes_B = self.sizes_G[index_B]
        node_rows, edge_rows = _rows(self.node_ptr, index_B), _rows(self.edge_ptr, index_B)
        node_offset_B = sizes_B.cumsum(0) - sizes_B
        edges_B = self.edge_ptr[index_B + 1] - self.edge_ptr[index_B]
        edge_index_2E = self.edge_index_2E[:, edge_rows] + node_offset_B.repeat_interleave(edges_B)
        degree_N = torch.bincount(edge_index_2E[0], minlength=len(node_rows))
        in_memory = any(isinstance(values, Tensor) for values in self.pair.values())
        pair_rows = _rows(self.pair_ptr, index_B) if in_memory else node_rows
        return GraphBatch(
            sizes=tuple(sizes_B.tolist()),
            index_B=index_B,
            x_NF=self.x_NF[node_rows],
            edge_index_2E=edge_index_2E,
            edge_attr_EF=None if self.edge_attr_EF is None else self.edge_attr_EF[edge_rows],
            y=self.y[index_B if self.level == "graph" else node_rows],
            log_deg_N=torch.log1p(degree_N.to(torch.float32)),
            pair={
                name: values[pair_rows] if isinstance(values, Tensor) else values.rows_of(index_B.tolist())
                for name, values in self.pair.items()
            },
            node={name: values[node_rows] for name, values in self.node.items()},
        )


def _rows(ptr: Tensor, index_B: Tensor) -> Tensor:
    """Rows of the graphs `index_B` in a flat array with offsets `ptr`, graph after graph."""
    start_B, count_B = ptr[index_B], ptr[index_B + 1] - ptr[index_B]
    first_B = count_B.cumsum(0) - count_B
    return torch.arange(int(count_B.sum())) + (start_B - first_B).repeat_interleave(count_B)
