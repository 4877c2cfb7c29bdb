"""Encodings computed when a batch is built, by the process that builds it, in place of arrays of a whole split."""

from typing import Any, Self

import torch
from torch import Tensor

from graphgps_spse.encodings.base import Encoding, GraphArrays, sample_by_size, select
from graphgps_spse.encodings.path_counts import PathCountEncoding, describe_counts
from graphgps_spse.encodings.storage.split import Split, compute

_SAMPLED_GRAPHS = 64


class OnTheFly:
    """Rows of a split, computed when they are asked for, to the same bits as for the whole split.

    One computation gives pairs and nodes, on one thread: loader processes are what runs side by side.
    """

    def __init__(self, encoding: Encoding, where: str, record: dict[str, Any] | None = None) -> None:
        """`where` names the data set and split in messages."""
        self.encoding, self.where, self.record = encoding, where, record or {}

    @classmethod
    def encode(cls, encoding: Encoding, split: Split) -> Self:
        """Encode a sample now, for the record. So errors often come before training, and kernels are compiled once."""
        most = _SAMPLED_GRAPHS if isinstance(encoding, PathCountEncoding) else 1
        numbers = sample_by_size(split.graphs, most)
        sample = compute(encoding, select(split.graphs, numbers), split.where, numbers)
        counts = {} if sample.status_GK is None else describe_counts(sample.status_GK, sample.work)
        rest = {"sampled_graphs": len(numbers), "num_graphs": len(split.graphs.node_ptr) - 1}
        return cls(encoding, split.where, encoding.record() | counts | rest)

    def rows(
        self, index_B: Tensor, node_ptr: Tensor, edge_ptr: Tensor, edge_index_2E: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return pair and node rows of the graphs `index_B`; see data.base.EncodedSplit.

        Raises DataError, naming the graph by its number in the split, where one cannot be encoded.
        """
        graphs = GraphArrays(node_ptr.numpy(), edge_ptr.numpy(), edge_index_2E.numpy())
        encoded = compute(self.encoding, graphs, self.where, index_B.tolist())
        pair, node = (None if rows is None else torch.from_numpy(rows) for rows in (encoded.pair, encoded.node))
        return pair, node
