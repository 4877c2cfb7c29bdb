"""Plain compiled path counter for comparison: depth-first search from each node, with one step per path."""

import numba
import numpy as np

from graphgps_spse.encodings.base import GraphArrays


def count(graphs: GraphArrays, max_length: int) -> list[np.ndarray]:
    """Return the counts of each graph, [K, n, n], where each edge is given in both directions."""
    found = []
    for g in range(len(graphs.node_ptr) - 1):
        n = int(graphs.node_ptr[g + 1] - graphs.node_ptr[g])
        adjacency = np.zeros((n, n), np.bool_)
        edges = graphs.edge_index[:, graphs.edge_ptr[g] : graphs.edge_ptr[g + 1]]
        adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = True
        np.fill_diagonal(adjacency, False)
        row, col = np.nonzero(adjacency)
        found.append(_search(np.searchsorted(row, np.arange(n + 1)), col, max_length))
    return found


@numba.njit(nogil=True, cache=True)
def _search(ptr, col, max_length):
    n = len(ptr) - 1
    counts = np.zeros((max_length, n, n))
    seen = np.zeros(n, np.bool_)
    path, cursor = np.empty(max_length + 1, np.int64), np.empty(max_length + 1, np.int64)
    for root in range(n):
        path[0], cursor[0], depth = root, ptr[root], 0
        seen[root] = True
        while depth >= 0:
            node = path[depth]
            if depth == max_length or cursor[depth] == ptr[node + 1]:
                seen[node] = False
                depth -= 1
                continue
            following = col[cursor[depth]]
            cursor[depth] += 1
            if not seen[following]:
                counts[depth, root, following] += 1
                seen[following] = True
                depth += 1
                path[depth], cursor[depth] = following, ptr[following]
    return counts
