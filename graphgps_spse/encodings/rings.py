"""Rings: which pairs of nodes lie on a common chordless cycle, an encoding of pairs that CSA reads (`posenc_Rings`)."""

from typing import Any, ClassVar, Self

import numpy as np

from graphgps_spse.counting.graph import SimpleGraphs, pair_offsets
from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, Progress
from graphgps_spse.encodings.simple import for_each_simple
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.jit import kernel
from graphgps_spse.registry import encodings

MAX_STEPS = 1 << 30
"""Most steps of the search in one graph, about ten nanoseconds each: looks at a neighbour of a path's end."""


@encodings.register("Rings")
class Rings(Encoding):
    """1 for pairs on a common chordless cycle of 3 to `max_length` edges of the symmetrised graph, else 0."""

    name: ClassVar[str] = "Rings"
    dim_pair, dim_node = 1, 0

    def __init__(self, *, max_length: int, max_steps: int = MAX_STEPS) -> None:
        """`max_length` is the length of the largest ring. Raises ConfigError below 3."""
        if max_length < 3:
            raise ConfigError(f"posenc_Rings.max_length: {max_length} is below 3, the length of the shortest ring")
        self.max_length, self.max_steps = max_length, max_steps

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_Rings."""
        return cls(max_length=cfg.posenc_Rings.max_length)

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph; the diagonal is 0, for nodes in rings too, as in CSA (Menegaux et al. 2023).

        Raises DataError for a graph whose search takes more than `max_steps`.
        """
        pair_ptr, limit = pair_offsets(graphs.node_ptr), np.array([self.max_steps])
        pair_P1 = np.zeros((int(pair_ptr[-1]), 1), np.float32)

        def process(simple: SimpleGraphs, first: int, last: int, offset: int) -> None:
            rows_P1 = pair_P1[pair_ptr[offset] :]
            failed = _ring_chunk(
                simple.node_ptr, simple.pair_ptr, *simple.links, first, last, self.max_length, limit, rows_P1
            )
            if failed >= 0:
                size = int(np.diff(simple.node_ptr)[failed])
                raise DataError(
                    f"graph {offset + failed}: the search for chordless cycles of up to {self.max_length} edges among "
                    f"its {size} nodes takes more than {self.max_steps:,} steps; rings are for sparse graphs, such as "
                    "molecules: lower posenc_Rings.max_length or set posenc_Rings.enable=False"
                )

        for_each_simple(graphs, process, directed=False, num_threads=num_threads, progress=progress, limit=limit)
        return EncodingArrays(pair=pair_P1, record={"encoding": self.name, "max_length": self.max_length})


@kernel
def _ring_chunk(node_ptr, pair_ptr, row_ptr, col, first, last, max_length, limit, pair_P1):
    """Return the first graph that takes more than limit[0] steps, or -1."""
    for g in range(first, last):
        start, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        rows, steps = row_ptr[start : start + n + 1], 0
        core = _two_core(rows, col, n)
        distance, queue, touched = np.full(n, n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
        path, place = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
        for root in range(n):
            if core[root]:
                far = max_length // 2  # no node of a ring is farther from its root
                num_reached = _distances(rows, col, core, root, far, distance, queue)
                steps = _rings_of_root(
                    rows, col, root, max_length, distance, touched, path, place, limit, steps, pair_P1[pair_ptr[g] :, 0]
                )
                if steps < 0:
                    return g
                for k in range(num_reached):
                    distance[queue[k]] = n
                core[root] = False  # its rings are all found
    return -1


@kernel
def _two_core(rows, col, n):
    """Which nodes are left when nodes with fewer than two neighbours are taken away, again and again."""
    degree, core = rows[1:] - rows[:-1], np.ones(n, np.bool_)
    stack, size = np.empty(n, np.int64), 0
    for node in range(n):
        if degree[node] < 2:
            core[node] = False
            stack[size] = node
            size += 1
    while size:
        size -= 1
        node = stack[size]
        for at in range(rows[node], rows[node + 1]):
            other = col[at]
            degree[other] -= 1
            if core[other] and degree[other] < 2:
                core[other] = False
                stack[size] = other
                size += 1
    return core


@kernel
def _distances(rows, col, core, root, far, distance, queue):
    """Fill the distances from `root` within the core, up to `far`; return how many nodes were reached."""
    distance[root], queue[0], head, tail = 0, root, 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        if distance[node] == far:
            break
        for at in range(rows[node], rows[node + 1]):
            other = col[at]
            if core[other] and distance[other] > distance[node] + 1:
                distance[other] = distance[node] + 1
                queue[tail] = other
                tail += 1
    return tail


@kernel
def _rings_of_root(rows, col, root, max_length, distance, touched, path, place, limit, steps, ring_P):
    """Mark the rings whose smallest node is `root`: induced paths from it are extended until they come back.

    `touched` counts, for each node, its neighbours on the path, the last one aside. A node that may follow touches
    none of them, unless it closes the ring by touching the root alone. It must be near enough to the root to come back
    in time; nodes outside the search have a `distance` of n.
    """
    n = len(touched)
    path[0], place[0], depth = root, rows[root], 0
    while depth >= 0:
        end = path[depth]
        if place[depth] == rows[end + 1]:
            depth -= 1  # `end` leaves the path, and what was its last but one is its last again
            if depth >= 0:
                for at in range(rows[path[depth]], rows[path[depth] + 1]):
                    touched[col[at]] -= 1
            continue
        node = col[place[depth]]
        place[depth] += 1
        steps += 1
        if steps > limit[0]:
            return -1
        if distance[node] == n or node == root or depth + 1 + distance[node] > max_length:
            continue
        if depth > 0 and distance[node] == 1:
            if touched[node] == 1 and node > path[1]:  # each ring in one of its two directions
                path[depth + 1] = node
                for a in range(depth + 2):
                    for b in range(depth + 2):
                        if a != b:
                            ring_P[path[a] * n + path[b]] = 1.0
        elif touched[node] == 0:
            for at in range(rows[end], rows[end + 1]):
                touched[col[at]] += 1
            depth += 1
            path[depth], place[depth] = node, rows[node]
    return steps
