"""Every simple path, counted exactly: easy graphs by one kernel, hard ones block by block with the cheapest method.

A block of a hard graph is counted by depth-first search (blocks.py), by the same with closed forms for the last four
edges (tails.py), or by subset dynamic programming (subsets.py): whichever is predicted to take the least work.

Counts are float64. Below 2^53 they are exact integers; so are those of all sums on the way, as long as the paths from
a node of four edges less, times the degree to the fourth, stay below it. Beyond, each block that the paths cross
adds a relative error of about 1e-16, closed forms one of 1e-16 of that bound. Nothing wraps around: what exceeds
float64 is infinite.
"""

import numpy as np

from graphgps_spse.counting.blocks import count_chunk
from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.hard import HardGraph
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import Spread
from graphgps_spse.counting.records import ChunkCounts, Status

_EASY_WORK = 1 << 19  # half a millisecond of depth-first search, before a graph is looked at more closely


def count_exact(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    options: CountOptions,
    limit: np.ndarray,
    spread: Spread,
    counts_PK: np.ndarray,
) -> ChunkCounts | None:
    """Count every simple path of graphs first..last-1; see the package for what is common to all counters."""
    return count_within(graphs, first, last, max_length, options.max_work, limit, spread, counts_PK)


def count_within(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    max_work: int,
    limit: np.ndarray,
    spread: Spread,
    counts_PK: np.ndarray,
) -> ChunkCounts | None:
    """Count every simple path of graphs first..last-1 with at most `max_work` for each.

    Where the search of one graph would take more, its longest lengths are not counted; length 1 always is. No graph
    takes more than a few times `max_work`.
    """
    status_GK, hard = np.zeros((last - first, max_length), np.int8), np.zeros(last - first, np.bool_)
    spans = np.zeros((2, len(counts_PK)), np.int16)
    work = count_chunk(
        graphs.node_ptr,
        *graphs.arcs,
        *graphs.links,
        first,
        last,
        max_length,
        not graphs.directed,
        min(_EASY_WORK, max_work),
        limit,
        hard,
        spans,
        counts_PK,
    )
    if work < 0:
        return None
    if not np.count_nonzero(hard):
        return ChunkCounts(counts_PK, None, status_GK, work, spans)
    offset = graphs.pair_ptr[first : last + 1] - graphs.pair_ptr[first]
    for g in np.flatnonzero(hard).tolist():
        graph = HardGraph.of(graphs, first + g, max_length)
        counts = counts_PK[offset[g] : offset[g + 1]]
        spans[0, offset[g] : offset[g + 1]], spans[1, offset[g] : offset[g + 1]] = 0, max_length
        counted, more = graph.count(max_work, limit, int(work), spread, counts)
        work += more
        if not counted:
            return None
        counts[:, counted:] = np.nan
        status_GK[g, counted:] = Status.NOT_COUNTED.code
    return ChunkCounts(counts_PK, None, status_GK, int(work), spans)


def predict_work(graphs: SimpleGraphs, graph: int, max_length: int) -> np.ndarray:
    """Return [max_length] float64: about how much work counting one graph up to each length takes."""
    return HardGraph.of(graphs, graph, max_length).predicted_K
