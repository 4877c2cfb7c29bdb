"""What the graphs of a split are like: sizes, degrees, connectedness, direction, loops, targets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphgps_spse.data.base import DatasetSpec, GraphDataset, count_rows, flat_rows

_CHUNK_ROWS = 1 << 20  # nodes and edges that are looked at at a time: arrays on disk are never in memory as a whole


class Spread(NamedTuple):
    """Smallest, mean and largest of some numbers."""

    low: float
    mean: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.low)} to {_short(self.high)}, mean {_short(self.mean)}"


class TargetSummary(NamedTuple):
    """One column of targets."""

    name: str
    missing: int
    """Rows without it."""
    values: Spread | None
    """Of those that are known; None where none is."""
    deviation: float
    """Their standard deviation."""
    counts: tuple[int, ...]
    """Rows of each class; empty for regression."""


@dataclass(frozen=True)
class SplitSummary:
    """One split. What is counted of a graph is counted in the graph as stored, before any encoding changes it."""

    num_graphs: int
    num_pairs: int
    nodes: Spread
    """Of a graph, as the next two."""
    edges: Spread
    """Directed ones: an undirected edge counts twice."""
    pairs: Spread
    degree: Spread
    """Of a node: edges that leave it."""
    disconnected: int
    """Graphs of more than one component, as the next five."""
    directed: int
    """With an edge that has no reverse."""
    with_self_loops: int
    with_multi_edges: int
    without_edges: int
    of_one_node: int
    targets: tuple[TargetSummary, ...]


def summarise(graphs: GraphDataset, spec: DatasetSpec) -> SplitSummary:
    """Look at every graph of a split."""
    found = np.zeros(4, dtype=np.int64)
    least, most = np.iinfo(np.int64).max, 0
    for first, last in _chunks(graphs):
        flags, low, high = _look_at(graphs, first, last)
        found += flags
        least, most = min(least, low), max(most, high)
    sizes, edges = graphs.sizes_G, graphs.edge_ptr.diff()
    num_nodes, num_edges = int(graphs.node_ptr[-1]), int(graphs.edge_ptr[-1])
    return SplitSummary(
        num_graphs=len(graphs),
        num_pairs=int(sizes.square().sum()),
        nodes=_spread(sizes),
        edges=_spread(edges),
        pairs=_spread(sizes.square()),
        degree=Spread(least, num_edges / num_nodes, most),
        disconnected=int(found[0]),
        directed=int(found[1]),
        with_self_loops=int(found[2]),
        with_multi_edges=int(found[3]),
        without_edges=int((edges == 0).sum()),
        of_one_node=int((sizes == 1).sum()),
        targets=tuple(_summarise_target(graphs.y[:, t], spec, t) for t in range(graphs.y.shape[1])),
    )


def take_graphs(graphs: GraphDataset, chosen: Sequence[int]) -> GraphDataset:
    """Return some graphs of a split, in the order given, without encodings."""
    index_B = torch.as_tensor(chosen, dtype=torch.int64)
    nodes, edges = flat_rows(graphs.node_ptr, index_B), flat_rows(graphs.edge_ptr, index_B)
    zero = torch.zeros(1, dtype=torch.int64)
    return GraphDataset(
        name=graphs.name,
        split=graphs.split,
        x_NF=graphs.x_NF[nodes],
        edge_index_2E=graphs.edge_index_2E[:, edges],
        edge_attr_EF=None if graphs.edge_attr_EF is None else graphs.edge_attr_EF[edges],
        y=graphs.y[index_B if graphs.level == "graph" else nodes],
        node_ptr=torch.cat([zero, count_rows(graphs.node_ptr, index_B).cumsum(0)]),
        edge_ptr=torch.cat([zero, count_rows(graphs.edge_ptr, index_B).cumsum(0)]),
        level=graphs.level,
        may_miss_targets=graphs.may_miss_targets,
    )


def cut_graphs(graphs: GraphDataset, max_nodes: int) -> GraphDataset:
    """Return the first `max_nodes` nodes of every graph, with the edges among them, without encodings."""
    sizes_G = graphs.sizes_G.clamp(max=max_nodes)
    own_N = torch.arange(int(graphs.node_ptr[-1])) - graphs.node_ptr[:-1].repeat_interleave(graphs.sizes_G)
    nodes, edges = own_N < max_nodes, (graphs.edge_index_2E < max_nodes).all(0)
    graph_E = torch.arange(len(graphs)).repeat_interleave(graphs.edge_ptr.diff())[edges]
    zero = torch.zeros(1, dtype=torch.int64)
    return GraphDataset(
        name=graphs.name,
        split=graphs.split,
        x_NF=graphs.x_NF[nodes],
        edge_index_2E=graphs.edge_index_2E[:, edges],
        edge_attr_EF=None if graphs.edge_attr_EF is None else graphs.edge_attr_EF[edges],
        y=graphs.y if graphs.level == "graph" else graphs.y[nodes],
        node_ptr=torch.cat([zero, sizes_G.cumsum(0)]),
        edge_ptr=torch.cat([zero, torch.bincount(graph_E, minlength=len(graphs)).cumsum(0)]),
        level=graphs.level,
        may_miss_targets=graphs.may_miss_targets,
    )


def spread_by_size(graphs: GraphDataset, number: int) -> list[int]:
    """Return up to `number` graphs at even ranks of the order by size, the smallest first."""
    number = min(number, len(graphs))
    ranks = ((np.arange(number) + 0.5) * len(graphs) / number).astype(np.int64)
    return torch.argsort(graphs.sizes_G, stable=True)[torch.from_numpy(ranks)].tolist()


def _chunks(graphs: GraphDataset) -> Iterator[tuple[int, int]]:
    """Yield first and last + 1 of consecutive graphs that together have few nodes and edges, or of one."""
    rows = graphs.node_ptr + graphs.edge_ptr
    first = 0
    while first < len(graphs):
        last = int(torch.searchsorted(rows, rows[first] + _CHUNK_ROWS, right=True)) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _look_at(graphs: GraphDataset, first: int, last: int) -> tuple[np.ndarray, int, int]:
    """Return how many of some graphs are disconnected, directed, with loops and with multi-edges; degree bounds."""
    node_ptr = (graphs.node_ptr[first : last + 1] - graphs.node_ptr[first]).numpy()
    edge_ptr = graphs.edge_ptr[first : last + 1]
    num_nodes, num_graphs = int(node_ptr[-1]), last - first
    local = graphs.edge_index_2E[:, int(edge_ptr[0]) : int(edge_ptr[-1])].to(torch.int64).numpy()
    graph_E = np.repeat(np.arange(num_graphs), edge_ptr.diff().numpy())
    sender, receiver = local + node_ptr[graph_E]
    key = sender * num_nodes + receiver
    unique, place, number = np.unique(key, return_index=True, return_counts=True)
    reverse = receiver[place] * num_nodes + sender[place]
    at = np.minimum(np.searchsorted(unique, reverse), max(len(unique) - 1, 0))
    lonely = graph_E[place][unique[at] != reverse] if len(unique) else graph_E
    matrix = csr_matrix((np.ones(len(sender), np.int8), (sender, receiver)), shape=(num_nodes, num_nodes))
    _, component_N = connected_components(matrix, directed=True, connection="weak")
    _, one_node = np.unique(component_N, return_index=True)
    graph_N = np.repeat(np.arange(num_graphs), np.diff(node_ptr))
    degree = np.bincount(sender, minlength=num_nodes)
    flags = (
        (np.bincount(graph_N[one_node], minlength=num_graphs) > 1).sum(),
        len(np.unique(lonely)),
        len(np.unique(graph_E[sender == receiver])),
        len(np.unique(graph_E[place][number > 1])),
    )
    return np.array(flags), int(degree.min()), int(degree.max())


def _summarise_target(y: Tensor, spec: DatasetSpec, number: int) -> TargetSummary:
    name = spec.target_names[number] if spec.target_names else f"target{number}"
    known = y[~torch.isnan(y)].double() if y.is_floating_point() else y.double()
    counts: tuple[int, ...] = ()
    if spec.num_classes:
        counts = tuple(torch.bincount(known.long(), minlength=spec.num_classes).tolist())
    values = _spread(known) if len(known) else None
    deviation = float(known.std(correction=0)) if len(known) else 0.0
    return TargetSummary(name, len(y) - len(known), values, deviation, counts)


def _short(value: float) -> str:
    """Return a number for people: whole ones with every digit."""
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:,.4g}"


def _spread(values: Tensor) -> Spread:
    return Spread(values.min().item(), values.double().mean().item(), values.max().item())
