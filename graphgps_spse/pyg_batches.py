"""Batches of PyG as they are now: which graph each edge belongs to, also after edges were added, removed or reordered.

PyG cuts a batch where its graphs ended when they were batched, so `to_data_list` loses edges that were added later.
"""

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphgps_spse.errors import DataError

CHANGED = "the graphs of this batch were changed after they were batched; change them before"


class BatchParts(NamedTuple):
    """Nodes and edges of the graphs of a batch, on the CPU."""

    node_ptr: Tensor
    """[G + 1] int64: nodes node_ptr[g] .. node_ptr[g + 1] - 1 are those of graph g."""
    graph_E: Tensor
    """[E] int64: the graph of each edge. Edges may be in any order."""

    @property
    def num_graphs(self) -> int:
        """Number of graphs, G."""
        return len(self.node_ptr) - 1

    @property
    def edge_ptr(self) -> Tensor:
        """Offsets of the edges of each graph once they are sorted by graph, [G + 1] int64."""
        return _offsets(self.graph_E.bincount(minlength=self.num_graphs))


def find_parts(batch: Any, edges: Tensor) -> BatchParts:
    """Return the graphs of a PyG batch whose edges are now `edges`, [2, E] int64 on the CPU.

    Raises DataError if nodes were added, removed or reordered after batching, or if an edge leads to another graph.
    """
    graph_N, ptr = getattr(batch, "batch", None), getattr(batch, "ptr", None)
    if not isinstance(graph_N, Tensor) or graph_N.dim() != 1:
        raise DataError("this batch has no vector `batch` with the graph of each node; use Batch.from_data_list")
    graph_N = graph_N.cpu().to(torch.int64)
    if len(graph_N) and int(graph_N.min()) < 0:
        raise DataError(f"the vector `batch` of this batch holds negative numbers; {CHANGED}")
    node_ptr = ptr.cpu() if isinstance(ptr, Tensor) else _offsets(graph_N.bincount(minlength=batch.num_graphs))
    expected_N = torch.arange(len(node_ptr) - 1).repeat_interleave(node_ptr.diff())
    if not torch.equal(graph_N, expected_N) or batch.num_nodes != len(graph_N):
        raise DataError(f"the nodes of this batch do not fit its vectors `batch` and `ptr`: {CHANGED}")
    outside = ((edges < 0) | (edges >= len(graph_N))).any(0).nonzero()
    if len(outside):
        ends = tuple(edges[:, outside[0, 0]].tolist())
        raise DataError(f"edge {ends} of this batch points outside its {len(graph_N)} nodes")
    source_E, target_E = graph_N[edges]
    between = (source_E != target_E).nonzero()
    if len(between):
        edge = int(between[0, 0])
        raise DataError(
            f"edge {edge} of this batch leads from graph {int(source_E[edge])} to graph {int(target_E[edge])}: either "
            f"it is outside its graph, or {CHANGED}"
        )
    return BatchParts(node_ptr, source_E)


def cut_batch(batch: Any, edges: Tensor) -> list[Any]:
    """Return the graphs of a PyG batch as it is now, where `edges` are its edges, [2, E] int64 on the CPU.

    The edges of a graph keep their order, and values of edges follow them. `edge_index`, `x`, `edge_attr` and `y` may
    have been added after batching. Raises DataError for other changes, and for a batch that was not made of graphs.
    """
    parts, slices = find_parts(batch, edges), getattr(batch, "_slice_dict", None)
    if slices is None:
        raise DataError("this batch was not made by Batch.from_data_list; give a list of its graphs")
    order, cut = parts.graph_E.argsort(stable=True), copy.copy(batch)
    new_slices, new_incs = dict(slices), {"edge_index": parts.node_ptr[:-1], **batch._inc_dict}
    for name in dict.fromkeys((*slices, "edge_index", "x", "edge_attr", "y")):
        values = getattr(batch, name, None)
        if not isinstance(values, Tensor):
            continue
        dim = batch.__cat_dim__(name, values) or 0
        rows = values.shape[dim] if values.dim() else -1
        new_slices[name] = _offsets_of(name, rows, slices, parts)
        new_incs.setdefault(name, torch.zeros(parts.num_graphs, dtype=torch.int64))
        if rows != int(new_slices[name][-1]):
            raise DataError(f"{name} has {max(rows, 0)} rows for {int(new_slices[name][-1])} in this batch: {CHANGED}")
        if _is_of_edges(name, slices, parts):
            cut[name] = values.index_select(dim, order.to(values.device))
    cut._slice_dict, cut._inc_dict = new_slices, new_incs
    return list(cut.to_data_list())


def _offsets_of(name: str, num_rows: int, slices: dict[str, Any], parts: BatchParts) -> Tensor:
    """Return the offsets of the rows of an attribute in each graph, [G + 1] int64."""
    if _is_of_edges(name, slices, parts):
        return parts.edge_ptr
    if name in slices and (name not in ("x", "y") or num_rows == int(slices[name][-1])):
        return torch.as_tensor(slices[name])
    of_graphs = torch.arange(parts.num_graphs + 1)
    return parts.node_ptr if name == "x" or num_rows != parts.num_graphs else of_graphs


def _is_of_edges(name: str, slices: dict[str, Any], parts: BatchParts) -> bool:
    """Return whether an attribute holds a row for each edge; where nodes or graphs fit as well, its name decides."""
    if name not in slices or name == "edge_index":
        return "edge" in name
    at = torch.as_tensor(slices[name])
    fits_others = torch.equal(at, parts.node_ptr) or torch.equal(at, torch.arange(parts.num_graphs + 1))
    of_edges = torch.as_tensor(slices.get("edge_index", []))
    return torch.equal(at, of_edges) and ("edge" in name or not fits_others)


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
