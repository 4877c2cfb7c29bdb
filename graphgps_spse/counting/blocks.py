"""Graphs of small blocks: depth-first inside biconnected blocks, products of polynomials across cut vertices.

A simple path crosses each cut vertex on its way once, and between two cut vertices it stays inside one block. So
with S(u, v) = sum_k S_k[u, v] x^k, and c a cut vertex between u and v, S(u, v) = S(u, c) S(c, v). Enumeration is left
with the blocks: the ring systems of a molecule, the whole graph where nothing can be cut. Blocks are those of the
symmetrised graph, which bound the paths of a directed graph just as well.

Arrays: `row_ptr` [N + 1] and `col` [E] hold the neighbours (numbers within the graph) of every node of every graph.
"""

import numpy as np

from graphgps_spse.jit import kernel

_STRIDE = 1 << 12  # steps between two looks at the limits
_PAIR = 0.5  # work for each entry of the result


@kernel
def count_chunk(
    node_ptr,
    row_ptr,
    col,
    both_ptr,
    both_col,
    first,
    last,
    max_length,
    symmetric,
    easy_work,
    limit,
    hard,
    spans,
    counts_PK,
):
    """Count the paths of graphs first..last-1 into `counts_PK`, [pairs of the chunk, max_length] float64 zeros.

    `row_ptr, col` are the arcs to follow, `both_ptr, both_col` the symmetrised graph (the same arrays if `symmetric`).
    `spans` [2, pairs] int16 zeros come to say where each row of them is not zero. Graphs that take more than
    `easy_work` are marked in `hard` [G] and left at zero. Returns the work, or -1 if it exceeded `limit[0]`, which may
    be lowered meanwhile.
    """
    max_nodes = 1
    for g in range(first, last):
        max_nodes = max(max_nodes, node_ptr[g + 1] - node_ptr[g])
    scratch = np.empty((5, max_nodes + 1), np.int64)
    block_ptr = np.zeros(max_nodes + 1, np.int64)
    block_nodes = np.empty(2 * max_nodes, np.int64)
    free, done = np.zeros(max_nodes, np.int64), np.zeros(max_nodes, np.bool_)
    meters = np.zeros(1, np.int64)
    work, first_pair = 0, 0
    for g in range(first, last):
        start, stop = node_ptr[g], node_ptr[g + 1]
        n = stop - start
        counts, own_spans = counts_PK[first_pair : first_pair + n * n], spans[:, first_pair : first_pair + n * n]
        first_pair += n * n
        ptr, both = row_ptr[start : stop + 1], both_ptr[start : stop + 1]
        meters[0] = 0
        hard[g - first] = max_length > 2 and _count_walks(n, ptr) > easy_work
        if not hard[g - first]:
            num_blocks = find_blocks(n, both, both_col, scratch, block_ptr, block_nodes)
            hard[g - first] = not count_blocks(
                n,
                num_blocks,
                block_ptr,
                block_nodes,
                done,
                ptr,
                col,
                max_length,
                symmetric,
                scratch,
                own_spans,
                free,
                meters,
                easy_work,
                limit,
                counts,
            )
            if hard[g - first]:
                counts[:] = 0.0
        work += meters[0] + int(_PAIR * n * n * max_length)
        if work > limit[0]:
            return -1
    return work


@kernel
def _count_walks(n, ptr):
    """Return the steps that walks of two edges take, if as many arcs lead into each node as out of it."""
    walks = 0
    for v in range(n):
        walks += (ptr[v + 1] - ptr[v]) ** 2
    return walks


@kernel
def count_blocks(
    n,
    num_blocks,
    block_ptr,
    block_nodes,
    done,
    ptr,
    col,
    max_length,
    symmetric,
    scratch,
    spans,
    free,
    meters,
    cap,
    limit,
    counts,
):
    """Count the paths of one graph into `counts` [n * n, K], which holds those inside the blocks that are `done`.

    Adds the work to meters[0]. Returns False if it stopped because that exceeded `cap` or limit[0] became negative.
    Memory: `free` [n] of zeros, `scratch` [5, n + 1] and `spans` [2, n * n] of zeros, which it changes.
    """
    placed, is_placed, low, high = scratch[0], scratch[1], spans[0], spans[1]
    price = step_work(n, ptr)
    is_placed[:n] = 0
    num_placed = 0
    for b in range(num_blocks - 1, -1, -1):  # from the root of each component outwards
        begin, end = block_ptr[b], block_ptr[b + 1]
        top = block_nodes[begin]
        if not is_placed[top]:
            is_placed[top] = 1
            placed[0] = top
            num_placed = 1
        if symmetric and end - begin == 2:
            _join_bridge(n, top, block_nodes[begin + 1], placed, num_placed, max_length, low, high, counts)
        else:
            block = block_nodes[begin:end]
            if not done[b] and not (symmetric and _count_ring(n, block, ptr, col, max_length, scratch, free, counts)):
                size = end - begin
                if not search_block(
                    n, block, 0, size, ptr, col, max_length, price, scratch, free, meters, 0, cap, limit, counts
                ):
                    return False
                if meters[0] > cap:
                    return False
            _measure_block(n, block, max_length, low, high, counts)
            meters[0] += _join_block(n, 1, block, placed, num_placed, max_length, symmetric, limit, low, high, counts)
            if not symmetric:
                meters[0] += _join_block(1, n, block, placed, num_placed, max_length, False, limit, low, high, counts)
        if limit[0] < 0 or meters[0] > cap:
            return False
        for i in range(begin + 1, end):
            v = block_nodes[i]
            is_placed[v] = 1
            placed[num_placed] = v
            num_placed += 1
    return True


@kernel
def _count_ring(n, block, ptr, col, max_length, scratch, free, counts):
    """Count the paths of a block that is one cycle: two for each pair of vertices. Returns False if it is not."""
    size, ring = len(block), scratch[2]
    for v in block:
        free[v] = 1
    arcs = 0
    for v in block:
        for e in range(ptr[v], ptr[v + 1]):
            arcs += free[col[e]]
    if arcs == 2 * size:
        node = block[0]
        for i in range(size):
            ring[i] = node
            free[node] = 0
            for e in range(ptr[node], ptr[node + 1]):
                if free[col[e]]:
                    node = col[e]
                    break
        for around in range(1, min(size, max_length + 1)):
            j = around
            for i in range(size):
                counts[ring[i] * n + ring[j], around - 1] += 1.0
                counts[ring[j] * n + ring[i], around - 1] += 1.0
                j = j + 1 if j + 1 < size else 0
    for v in block:
        free[v] = 0
    return arcs == 2 * size


@kernel
def find_blocks(n, ptr, col, scratch, block_ptr, block_nodes):
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
def search_block(n, block, begin, end, ptr, col, max_length, price, scratch, free, meters, task, cap, limit, counts):
    """Count the paths from vertices begin..end-1 of one block to all of it, one step for each path extended.

    Adds the work to meters[task]. Returns False if it stopped because the sum of `meters` exceeded `cap` or limit[0]
    became negative. `free` [n] holds zeros before and after, `scratch` [5, n + 1] anything.
    """
    path, cursor = scratch[2], scratch[3]
    last = min(max_length, len(block) - 1) - 1
    for v in block:
        free[v] = 1
    steps, looked = 0, 0
    for r in range(begin, end):
        root = block[r]
        row = counts[root * n : (root + 1) * n]
        depth = 0
        path[0], cursor[0] = root, ptr[root]
        free[root] = 0
        while depth >= 0:
            steps += 1
            if steps - looked > _STRIDE:
                meters[task] += (steps - looked) * price
                looked = steps
                if limit[0] < 0 or meters.sum() > cap:
                    for v in block:
                        free[v] = 0
                    return False
            node = path[depth]
            if depth == last:  # nothing follows the next node: credit all that are free at once
                for e in range(ptr[node], ptr[node + 1]):
                    row[col[e], depth] += free[col[e]]
                free[node] = 1
                depth -= 1
                continue
            e, stop = cursor[depth], ptr[node + 1]
            while e < stop and not free[col[e]]:
                e += 1
            if e == stop:
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
    meters[task] += (steps - looked) * price
    return True


@kernel
def step_work(n, ptr):
    """Return the work of one step in a graph: it looks at one arc after the other."""
    return 6 + (ptr[n] - ptr[0]) // max(1, 2 * n)


@kernel
def _join_block(to, of, block, placed, num_placed, max_length, mirror, limit, low, high, counts):
    """Count the paths from the vertices placed so far to a block that hangs on one of them, its top.

    The paths from u to v are row u * to + v * of of `counts`: (n, 1) counts from u to v, (1, n) from v to u. `mirror`
    writes both at once. Their lengths lie in low + 1 .. high, mostly one to five of K. Returns the work.
    """
    top, work = block[0], 0
    for v in block[1:]:
        if limit[0] < 0:
            return work
        b = top * to + v * of
        for p in range(num_placed):
            u = placed[p]
            a, out, back = u * to + top * of, u * to + v * of, v * to + u * of
            if u == top:
                continue
            if mirror:  # the same numbers, side by side in memory for one u after the other
                a, out, back = top * to + u * of, back, out
            if high[a] == 0 or high[b] == 0:
                high[out] = 0
                continue
            low[out], high[out] = low[a] + low[b] + 1, min(max_length, high[a] + high[b])
            if mirror:
                low[back], high[back] = low[out], high[out]
            work += (high[b] - low[b]) * (high[a] - low[a])
            for i in range(low[b], high[b]):
                factor = counts[b, i]
                for k in range(low[a], min(high[a], max_length - 1 - i)):
                    counts[out, i + 1 + k] += factor * counts[a, k]
            if mirror:
                for k in range(low[out], high[out]):
                    counts[back, k] = counts[out, k]
    return work


@kernel
def _join_bridge(n, top, v, placed, num_placed, max_length, low, high, counts):
    """Do what `_join_block` does for a block of one edge, both ways: every path to v is one edge longer."""
    row, back = top * n + v, v * n + top
    counts[row, 0] = counts[back, 0] = 1.0
    low[row] = low[back] = 0
    high[row] = high[back] = 1
    for p in range(num_placed):
        u = placed[p]
        if u == top:
            continue
        a, row, back = top * n + u, v * n + u, u * n + v  # the first two side by side for one u after the other
        begin, end = low[a], min(high[a], max_length - 1)
        low[row] = low[back] = begin + 1
        high[row] = high[back] = end + 1
        for k in range(begin, end):
            counts[row, k + 1] = counts[back, k + 1] = counts[a, k]


@kernel
def _measure_block(n, block, max_length, low, high, counts):
    """Set the span of the lengths of paths between any two vertices of one block."""
    longest = min(max_length, len(block) - 1)
    for u in block:
        for v in block:
            begin, end, row = 0, longest, u * n + v
            while begin < end and counts[row, begin] == 0.0:
                begin += 1
            while end > begin and counts[row, end - 1] == 0.0:
                end -= 1
            low[row], high[row] = begin, end if end > begin else 0
