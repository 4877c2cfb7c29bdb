"""Encodings in memory: arrays of the whole split, made at the start of a run."""

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.counting.graphs import pair_offsets
from graphgps_spse.counting.parallel import Progress, chunk_bounds, for_each_chunk
from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, cut, num_rows
from graphgps_spse.encodings.path_counts import PathCountEncoding, describe_counts
from graphgps_spse.encodings.storage.split import Split, check_arrays, compute, located

_CHUNK_PAIRS = 1 << 14  # graphs that are encoded at a time, so that their arrays stay in the CPU's cache


class InMemory:
    """Rows of a split, cut from arrays."""

    def __init__(
        self, node_ptr: Tensor, pair: Tensor | None, node: Tensor | None, record: dict[str, Any] | None = None
    ) -> None:
        """`pair` is [P, C] and `node` [N, C], for the graphs that `node_ptr` bounds."""
        self.pair, self.node, self.record = pair, node, record or {}
        self._node_ptr = node_ptr.tolist()
        self._pair_ptr = pair_offsets(node_ptr.numpy()).tolist()

    @classmethod
    def encode(
        cls, encoding: Encoding, split: Split, *, num_threads: int = 1, progress: Progress | None = None
    ) -> Self:
        """Encode a split; raises what `compute` does."""
        if isinstance(encoding, PathCountEncoding):
            with located(split.where, range(len(split.graphs.node_ptr))):
                arrays = encoding.count_and_encode(split.graphs, num_threads=num_threads, progress=progress)
            check_arrays(encoding, arrays, split.graphs, split.where)
        else:
            arrays = _in_chunks(encoding, split, num_threads, progress)
        pair, node = (None if array is None else torch.from_numpy(array) for array in (arrays.pair, arrays.node))
        counts = {} if arrays.status_GK is None else describe_counts(arrays.status_GK, arrays.work)
        return cls(torch.from_numpy(split.graphs.node_ptr), pair, node, encoding.record() | counts)

    def rows(
        self, index_B: Tensor, node_ptr: Tensor, edge_ptr: Tensor, edge_index_2E: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return pair and node rows of the graphs `index_B`; see data.base.EncodedSplit."""
        return _blocks(self.pair, self._pair_ptr, index_B), _blocks(self.node, self._node_ptr, index_B)


def _blocks(rows: Tensor | None, ptr: list[int], index_B: Tensor) -> Tensor | None:
    return None if rows is None else torch.cat([rows[ptr[graph] : ptr[graph + 1]] for graph in index_B.tolist()])


def _in_chunks(encoding: Encoding, split: Split, num_threads: int, progress: Progress | None) -> EncodingArrays:
    graphs = GraphArrays(np.asarray(split.graphs.node_ptr, np.int64), *split.graphs[1:])
    (num_pairs, num_nodes), pair_ptr = num_rows(graphs), pair_offsets(graphs.node_ptr)
    pair = np.empty((num_pairs, encoding.dim_pair), np.float32) if encoding.dim_pair else None
    node = np.empty((num_nodes, encoding.dim_node), np.float32) if encoding.dim_node else None

    def process(first: int, last: int) -> None:
        chunk = compute(encoding, cut(graphs, first, last), split.where, range(first, last))
        for rows, ptr, own in ((pair, pair_ptr, chunk.pair), (node, graphs.node_ptr, chunk.node)):
            if rows is not None:
                rows[ptr[first] : ptr[last]] = own

    for_each_chunk(process, chunk_bounds(pair_ptr, _CHUNK_PAIRS), num_threads=num_threads, progress=progress)
    return EncodingArrays(pair, node)
