"""Every simple path, counted exactly: depth-first inside biconnected blocks, products of polynomials across them.

A simple path crosses each cut vertex on its way once, and between two cut vertices it stays inside one block. So
with S(u, v) = sum_k S_k[u, v] x^k, and c a cut vertex between u and v, S(u, v) = S(u, c) S(c, v). Enumeration is left
with the blocks: the ring systems of a molecule, the whole graph where nothing can be cut. Blocks are those of the
symmetrised graph, which bound the paths of a directed graph just as well.

Arrays: `row_ptr` [N + 1] and `col` [E] hold the neighbours (numbers within the graph) of every node of every graph.
"""

import numpy as np

from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.jit import kernel
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import Spread
from graphgps_spse.counting.records import ChunkCounts


def count_exact(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    options: CountOptions,
    limit: np.ndarray,
    spread: Spread,
) -> ChunkCounts | None:
    """Count every simple path of graphs first..last-1; None if that takes more than limit[0] steps ([1] int64).

    Counts are float64: exact up to 2^53, beyond that rounded, with a relative error of about 1e-16 for each block
    that the paths cross (an enumeration could not reach 2^53, a product over blocks can).
    """
    counts_PK = np.zeros((graphs.num_pairs(first, last), max_length))
    work = count_chunk(
        graphs.node_ptr, *graphs.arcs, *graphs.links, first, last, max_length, not graphs.directed, limit, counts_PK
    )
    return None if work < 0 else ChunkCounts(counts_PK, None, np.zeros((last - first, max_length), np.int8), int(work))


@kernel
def count_chunk(node_ptr, row_ptr, col, both_ptr, both_col, first, last, max_length, symmetric, limit, counts_PK):
    """Count the paths of graphs first..last-1 into `counts_PK`, [pairs of the chunk, max_length] float64 zeros.

    `row_ptr, col` are the arcs to follow, `both_ptr, both_col` the symmetrised graph (the same arrays if `symmetric`).
    Returns the number of steps of the enumeration, or -1 if it exceeded `limit[0]`, which may be lowered meanwhile.
    """
    max_nodes = 1
    for g in range(first, last):
        max_nodes = max(max_nodes, node_ptr[g + 1] - node_ptr[g])
    scratch = np.empty((5, max_nodes + 1), np.int64)
    block_ptr = np.zeros(max_nodes + 1, np.int64)
    block_nodes = np.empty(2 * max_nodes, np.int64)
    free = np.zeros(max_nodes, np.int64)
    steps, first_pair = 0, 0
    for g in range(first, last):
        start, stop = node_ptr[g], node_ptr[g + 1]
        n = stop - start
        counts = counts_PK[first_pair : first_pair + n * n]
        first_pair += n * n
        num_blocks = _find_blocks(n, both_ptr[start : stop + 1], both_col, scratch, block_ptr, block_nodes)
        ptr = row_ptr[start : stop + 1]
        placed, is_placed = scratch[0], scratch[1]
        is_placed[:n] = 0
        num_placed = 0
        for b in range(num_blocks - 1, -1, -1):  # from the root of each component outwards
            block = block_nodes[block_ptr[b] : block_ptr[b + 1]]
            top = block[0]
            if not is_placed[top]:
                is_placed[top] = 1
                placed[0] = top
                num_placed = 1
            if symmetric and len(block) == 2:
                counts[top * n + block[1], 0] = 1.0
                counts[block[1] * n + top, 0] = 1.0
            else:
                steps = _enumerate_block(n, block, ptr, col, max_length, scratch, free, limit, steps, counts)
                if steps < 0:
                    return steps
            _join_block(n, 1, block, placed[:num_placed], max_length, symmetric, scratch, counts)
            if not symmetric:
                _join_block(1, n, block, placed[:num_placed], max_length, False, scratch, counts)
            for v in block[1:]:
                is_placed[v] = 1
                placed[num_placed] = v
                num_placed += 1
    return steps


@kernel
def _find_blocks(n, ptr, col, scratch, block_ptr, block_nodes):
    """Find the biconnected components (Hopcroft and Tarjan 1973) of one undirected graph; return their number.

    Block b is block_nodes[block_ptr[b]:block_ptr[b + 1]]. It begins with its top, the vertex nearest to the root of
    the search, and is listed before the block that holds its top elsewhere.
    """
    order, low, parent, cursor, stack = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    order[:n] = -1
    num_found, num_blocks, filled = 0, 0, 0
    for root in range(n):
        if order[root] >= 0:
            continue
        order[root] = low[root] = num_found
        num_found += 1
        parent[root], cursor[root] = -1, ptr[root]
        node, height = root, 0
        while node >= 0:
            if cursor[node] < ptr[node + 1]:
                other = col[cursor[node]]
                cursor[node] += 1
                if order[other] < 0:
                    order[other] = low[other] = num_found
                    num_found += 1
                    parent[other], cursor[other] = node, ptr[other]
                    stack[height] = other
                    height += 1
                    node = other
                else:
                    low[node] = min(low[node], order[other])
                continue
            above = parent[node]
            if above >= 0:
                low[above] = min(low[above], low[node])
                if low[node] >= order[above]:  # nothing below `above` reaches past it: a block is complete
                    block_nodes[filled] = above
                    filled += 1
                    while True:
                        height -= 1
                        block_nodes[filled] = stack[height]
                        filled += 1
                        if stack[height] == node:
                            break
                    num_blocks += 1
                    block_ptr[num_blocks] = filled
            node = above
    return num_blocks


@kernel
def _enumerate_block(n, block, ptr, col, max_length, scratch, free, limit, steps, counts):
    """Count the paths between all vertices of one block, one step for each path extended; -1 if beyond the limit."""
    path, cursor = scratch[2], scratch[3]
    last = min(max_length, len(block) - 1) - 1
    for v in block:
        free[v] = 1
    for root in block:
        row = counts[root * n : (root + 1) * n]
        depth = 0
        path[0], cursor[0] = root, ptr[root]
        free[root] = 0
        while depth >= 0:
            steps += 1
            if steps > limit[0]:
                return -1
            node = path[depth]
            if depth == last:  # nothing follows the next node: credit all that are free at once
                for e in range(ptr[node], ptr[node + 1]):
                    row[col[e], depth] += free[col[e]]
                free[node] = 1
                depth -= 1
                continue
            e, end = cursor[depth], ptr[node + 1]
            while e < end and not free[col[e]]:
                e += 1
            if e == end:
                free[node] = 1
                depth -= 1
                continue
            cursor[depth] = e + 1
            node = col[e]
            row[node, depth] += 1.0
            free[node] = 0
            depth += 1
            path[depth], cursor[depth] = node, ptr[node]
    for v in block:
        free[v] = 0
    return steps


@kernel
def _join_block(to, of, block, placed, max_length, mirror, scratch, counts):
    """Count the paths from the vertices placed so far to a block that hangs on one of them, its top.

    The paths from u to v are row u * to + v * of of `counts`: (n, 1) counts from u to v, (1, n) from v to u. `mirror`
    writes both at once.
    """
    top = block[0]
    low, high = scratch[2], scratch[3]  # span of the lengths at which u and top are joined: mostly one to five of K
    for p in range(len(placed)):
        a = placed[p] * to + top * of
        begin, end = 0, max_length
        while begin < end and counts[a, begin] == 0.0:
            begin += 1
        while end > begin and counts[a, end - 1] == 0.0:
            end -= 1
        low[p], high[p] = begin, end
    for v in block[1:]:
        b = top * to + v * of
        for i in range(max_length - 1):
            factor = counts[b, i]
            if factor == 0.0:
                continue
            for p in range(len(placed)):
                u = placed[p]
                a, out, back = u * to + top * of, u * to + v * of, v * to + u * of
                for k in range(low[p], min(high[p], max_length - 1 - i)):
                    value = counts[out, i + 1 + k] + factor * counts[a, k]
                    counts[out, i + 1 + k] = value
                    if mirror:
                        counts[back, i + 1 + k] = value
