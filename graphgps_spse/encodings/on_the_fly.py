"""Encodings computed when a batch is built, by the process that builds it, in place of arrays of a whole split."""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays
from graphgps_spse.errors import DataError


class OnTheFly:
    """Encodes the graphs of a batch, to the same bits as `encoding.compute` does for the whole split.

    One computation gives pairs and nodes, on one thread: loader processes are what runs side by side.
    """

    def __init__(self, encoding: Encoding, where: str) -> None:
        """`where` names the data set and split in messages."""
        self.encoding, self.where = encoding, where

    def encode_batch(
        self, index_B: Tensor, node_ptr: Tensor, edge_ptr: Tensor, edge_index_2E: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return pair and node rows; arguments as in data.base.BatchEncoder.

        Raises DataError, naming the graph by its number in the split, where one cannot be encoded.
        """
        arrays = GraphArrays(node_ptr.numpy(), edge_ptr.numpy(), edge_index_2E.numpy())
        encoded = self.encode(arrays, index_B.tolist())
        pair, node = (None if rows is None else torch.from_numpy(rows) for rows in (encoded.pair, encoded.node))
        return pair, node

    def encode(self, graphs: GraphArrays, numbers: Sequence[int]) -> EncodingArrays:
        """Encode graphs that are `numbers` in their split; errors as in `encode_batch`."""
        try:
            return self.encoding.compute(graphs, num_threads=1)
        except DataError as err:
            raise DataError(f"{self.where}, {_renumbered(str(err), numbers)}") from err


def select(graphs: GraphArrays, numbers: Sequence[int]) -> GraphArrays:
    """Return some graphs of a split as arrays of their own, int64."""
    bounds = [(*graphs.node_ptr[g : g + 2].tolist(), *graphs.edge_ptr[g : g + 2].tolist()) for g in numbers]
    edges = [graphs.edge_index[:, begin:end].astype(np.int64) for _, _, begin, end in bounds]
    return GraphArrays(
        node_ptr=np.cumsum([0, *(last - first for first, last, _, _ in bounds)]),
        edge_ptr=np.cumsum([0, *(end - begin for _, _, begin, end in bounds)]),
        edge_index=np.ascontiguousarray(np.concatenate([np.empty((2, 0), np.int64), *edges], axis=1)),
    )


def _renumbered(message: str, numbers: Sequence[int]) -> str:
    """Replace the number of the graph within its batch, with which messages begin, by that in its split."""
    return re.sub(r"^graph (\d+)", lambda match: f"graph {numbers[int(match[1])]}", message)
