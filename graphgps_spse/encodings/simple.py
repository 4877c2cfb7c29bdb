"""Work on the simple graphs of a split, a few at a time: what LapPE, SPD and Rings have in common."""

from collections.abc import Callable
from functools import partial

import numpy as np

from graphgps_spse.counting.graph import SimpleGraphs, check_graphs, pair_offsets, segments, simplify, take
from graphgps_spse.counting.parallel import Progress, chunk_bounds, for_each_chunk
from graphgps_spse.encodings.base import GraphArrays

Process = Callable[[SimpleGraphs, int, int, int], None]
"""process(graphs, first, last, offset) does graphs first..last-1 of `graphs`, whose graph 0 is the split's `offset`."""

_CHUNK_PAIRS = 1 << 14


def for_each_simple(
    graphs: GraphArrays,
    process: Process,
    *,
    directed: bool,
    num_threads: int = 1,
    progress: Progress | None = None,
    limit: np.ndarray | None = None,
) -> None:
    """Call `process` for all graphs, without loops and duplicate edges, symmetrised unless `directed`.

    Threads call it for different graphs at the same time; what it runs must release the GIL. Edges are sorted some
    graphs at a time, so memory does not grow with their number. `limit`, [1] int64, is what long kernels look at: it
    is lowered to -1 when they have to end, after Ctrl-C or another's failure. Raises DataError for arrays that are no
    graphs, naming the graph.
    """
    flat, limit = check_graphs(*graphs), np.zeros(1, np.int64) if limit is None else limit
    allowed = limit.copy()

    def stop() -> None:
        limit[0] = -1

    for first, last in segments(flat[1]):
        simple = simplify(*take(*flat, first, last), directed=directed)
        for_each_chunk(
            partial(_shifted, process, simple, first),
            chunk_bounds(pair_offsets(simple.node_ptr), _CHUNK_PAIRS),
            num_threads=num_threads,
            progress=progress,
            stop=stop,
        )
        limit[:] = allowed  # `stop` is called after the last chunk, too


def _shifted(process: Process, simple: SimpleGraphs, offset: int, first: int, last: int) -> None:
    process(simple, first, last, offset)
