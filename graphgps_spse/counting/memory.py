"""Where counts are written: straight into the result, or into memory that each thread uses again and again."""

from collections.abc import Callable
from threading import local

import numpy as np

from graphgps_spse.counting.blocks import clear_spans
from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.records import ChunkCounts


class Memory:
    """Zeros for the counts of a chunk, which are part of the result and stay."""

    def __init__(self, zeros: Callable[[int, int], np.ndarray]) -> None:
        """`zeros(first, last)` is the place for graphs first..last-1, [P, K] float64."""
        self.zeros = zeros

    def release(self, chunk: ChunkCounts) -> None:
        """Say that the counts of a chunk were consumed, by the thread that asked for their place."""


class ReusedMemory(Memory):
    """Zeros that each thread uses for one chunk after the other: new pages cost more than most counts.

    Nearly all counts of a large molecule are zero, so only what was written is cleared where a counter tells.
    """

    def __init__(self, graphs: SimpleGraphs, max_length: int) -> None:
        self._graphs, self._max_length, self._threads = graphs, max_length, local()
        super().__init__(self._zeros)

    def _zeros(self, first: int, last: int) -> np.ndarray:
        num_values = self._graphs.num_pairs(first, last) * self._max_length
        if len(getattr(self._threads, "values", ())) < num_values:
            self._threads.values = np.zeros(num_values)
        values: np.ndarray = self._threads.values[:num_values]
        return values.reshape(-1, self._max_length)

    def release(self, chunk: ChunkCounts) -> None:
        """Clear the counts of a chunk."""
        if chunk.spans is None:
            chunk.counts[:] = 0.0
        else:
            clear_spans(chunk.spans, chunk.counts)
