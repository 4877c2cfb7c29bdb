"""Simple paths of a small dense block, all lengths at once: subset dynamic programming (Bellman; Held and Karp 1962).

f[S, v] counts the paths from the root that visit exactly the vertices of S and end in v, so that
f[S + w, w] = sum_v f[S, v] A[v, w], and a path of k edges has k vertices after the root.
"""

import numpy as np

from graphgps_spse.jit import kernel

MAX_VERTICES = 20
"""A block of 20 vertices takes 80 MiB for each thread, and its counts, at most 18!, are integers below 2^53."""

_STRIDE = 1 << 14  # sets between two looks at the limits
_SET, _SET_VERTEX = 10.0, 5.0  # work of one set, and of each vertex of the block for it


def predict_subsets(num_vertices: int) -> float:
    """Return the work of counting all paths of a block."""
    return num_vertices * 2.0 ** (num_vertices - 1) * (_SET + _SET_VERTEX * num_vertices)


@kernel
def count_subsets(adjacency, begin, end, meters, task, cap, limit, counts):
    """Count the paths from vertices begin..end-1 of a block into `counts` [K, m, m], rows begin..end-1.

    Adds the work to meters[task]. Returns False if it stopped because the sum of `meters` exceeded `cap` or limit[0]
    became negative.
    """
    m, longest = len(adjacency), len(counts)
    width = (m + 2) // 4 * 4  # m - 1 vertices, in whole vectors
    paths, steps = np.empty((1 << (m - 1), m - 1)), np.empty(width)
    others, arcs = np.empty(m - 1, np.int64), np.zeros((m - 1, width))
    price, spent = _SET + _SET_VERTEX * m, 0
    for root in range(begin, end):
        for v in range(m - 1):
            others[v] = v if v < root else v + 1
        for v in range(m - 1):
            paths[1 << v, v] = adjacency[root, others[v]]
            for w in range(m - 1):
                arcs[v, w] = adjacency[others[v], others[w]]
        for members in range(1, 1 << (m - 1)):
            spent += 1
            if spent == _STRIDE:
                meters[task] += int(spent * price)
                spent = 0
                if limit[0] < 0 or meters.sum() > cap:
                    return False
            size = 0
            for v in range(m - 1):
                size += (members >> v) & 1
            if size > longest:
                continue
            steps[:] = 0.0
            for v in range(m - 1):
                if (members >> v) & 1:
                    number = paths[members, v]
                    if number == 0.0:
                        continue
                    counts[size - 1, root, others[v]] += number
                    for w in range(width):
                        steps[w] += number * arcs[v, w]
            for w in range(m - 1):
                if not (members >> w) & 1:
                    paths[members | (1 << w), w] = steps[w]
    meters[task] += int(spent * price)
    return True
