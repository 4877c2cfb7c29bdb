"""Chunks of pair rows that fit into the cache of a CPU."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from graphgps_spse.ops.pair_layout import PairLayout


class Chunk(NamedTuple):
    """Consecutive queries, first..last-1, whose pair rows start..stop-1 lie in a window of fixed length.

    All windows of a layout have the same length, so that matrix products see one shape.
    """

    first: int
    last: int
    start: int
    stop: int
    window: int
    """First row of the window."""
    rows: int
    """Length of the window."""

    def of(self, x_PD: Tensor) -> Tensor:
        """Return the window's rows of x."""
        return x_PD[self.window : self.window + self.rows]

    def clear_rest(self, x_RD: Tensor) -> None:
        """Set the rows of a window-sized x that belong to other queries to zero."""
        x_RD[: self.start - self.window] = 0
        x_RD[self.stop - self.window :] = 0


def cut_into_chunks(layout: PairLayout, max_rows: int) -> list[Chunk]:
    """Cut the queries into runs of at most `max_rows` pair rows each (or one query, if that alone has more)."""
    rows = max(min(max_rows, layout.num_pairs), max(layout.sizes))
    ends = np.append(layout.query_rows.first_row, layout.num_pairs)
    chunks, first = [], 0
    while first < layout.num_nodes:
        last = int(np.searchsorted(ends, ends[first] + rows, side="right")) - 1
        start, stop = int(ends[first]), int(ends[last])
        chunks.append(Chunk(first, last, start, stop, min(start, layout.num_pairs - rows), rows))
        first = last
    return chunks
