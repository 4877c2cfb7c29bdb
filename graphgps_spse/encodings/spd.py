"""Shortest-path distances of all pairs, by breadth-first search: an encoding of pairs that CSA can read."""

from typing import Any, ClassVar, Self

import numpy as np

from graphgps_spse.counting.graph import SimpleGraphs, pair_offsets
from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, Progress
from graphgps_spse.encodings.simple import for_each_simple
from graphgps_spse.errors import ConfigError
from graphgps_spse.jit import kernel
from graphgps_spse.registry import encodings

_MAX_LENGTH = 1 << 24  # float32 holds every whole number up to here


@encodings.register("SPD")
class SPD(Encoding):
    """Shortest-path distance of every pair, in edges: 0 on the diagonal, -1 beyond `max_length` or without a path."""

    name: ClassVar[str] = "SPD"
    dim_pair, dim_node = 1, 0

    def __init__(self, *, max_length: int) -> None:
        """`max_length` is the largest distance told from "far". Raises ConfigError below 1."""
        if not 1 <= max_length <= _MAX_LENGTH:
            raise ConfigError(f"posenc_SPD.max_length: {max_length} must be from 1 to {_MAX_LENGTH:,} edges")
        self.max_length = max_length

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_SPD."""
        return cls(max_length=cfg.posenc_SPD.max_length)

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph: pair (i, j) gets the least number of arcs from i to j, as RRWP walks from i to j.

        Arcs are followed as the edges give them, from row 0 to row 1, as in CSA (Menegaux et al. 2023).
        """
        pair_ptr = pair_offsets(graphs.node_ptr)
        pair_P1 = np.full((int(pair_ptr[-1]), 1), -1.0, np.float32)

        def process(simple: SimpleGraphs, first: int, last: int, offset: int) -> None:
            rows_P1 = pair_P1[pair_ptr[offset] :]
            _spd_chunk(simple.node_ptr, simple.pair_ptr, *simple.arcs, first, last, self.max_length, rows_P1)

        for_each_simple(graphs, process, directed=True, num_threads=num_threads, progress=progress)
        return EncodingArrays(pair=pair_P1, record={"encoding": self.name, "max_length": self.max_length})


@kernel
def _spd_chunk(node_ptr, pair_ptr, row_ptr, col, first, last, max_length, pair_P1):
    for g in range(first, last):
        start, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        queue = np.empty(n, np.int64)
        for source in range(n):
            distance = pair_P1[pair_ptr[g] + source * n : pair_ptr[g] + (source + 1) * n, 0]
            distance[source] = 0.0
            queue[0], head, tail = source, 0, 1
            while head < tail < n:  # once all are found there is no more to do
                node = queue[head]
                head += 1
                length = distance[node] + 1.0
                if length > max_length:
                    break  # the queue is in order of distance
                for at in range(row_ptr[start + node], row_ptr[start + node + 1]):
                    if distance[col[at]] < 0.0:
                        distance[col[at]] = length
                        queue[tail] = col[at]
                        tail += 1
