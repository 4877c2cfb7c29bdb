"""Simple paths of a dense block: depth-first for the first L - 4 edges, closed forms for the last four.

Let p = x_0 .. x_t = u be a path, Q its vertices, A the adjacency matrix, R = A * A^T its mutual arcs. Among the
vertices outside Q, with a[j] = A[u, j], the simple paths that go on from p by two, three and four edges number

    y[j] = sum_v a[v] A[v, j]
    z[j] = sum_w y[w] A[w, j] - a[j] r[j]                                       r[j] = sum_w R[j, w]
    c[j] = sum_w z[w] A[w, j] - (y[j] r[j] - sum_v a[v] R[v, j]) - a[j] T[j]    T[j] = sum_vw A[j, v] A[v, w] A[w, j]

since the fourth edge may lead back to the second vertex (second term) or the first (third term). The products with A
are linear, so `tail_counts` takes them once, of the sums over all p from one root. The entries of the products at
vertices of Q must not count: they are summed in `hits` and taken off. r and T of a path are those of the path one
edge shorter, less what its last vertex u took part in; so all paths that differ in u alone are treated together.
"""

import numpy as np

from graphgps_spse.jit import REASSOCIATE, kernel

_STRIDE = 1 << 20  # work between two looks at the limits: about a millisecond

# Work of one path and of one vertex of the block, for a path that closed forms continue and for its predecessor.
_LEAF, _LEAF_VERTEX, _NODE, _NODE_VERTEX = 40.0, 0.6, 150.0, 2.5


def predict_tails(num_vertices: int, paths: np.ndarray) -> np.ndarray:
    """Return [K] float64: the work of counting up to each length in a block with `paths` [K + 1] of each length."""
    m = num_vertices
    nodes = np.concatenate([np.zeros(4), np.cumsum(paths)[:-1]])[: len(paths) - 1]  # of 0 to k - 5 edges
    ends = np.concatenate([np.full(3, paths[0]), paths])[: len(paths) - 1]  # of k - 4 edges
    return ends * (_LEAF + m * _LEAF_VERTEX) + nodes * (_NODE + m * _NODE_VERTEX) + product_work(m)


def product_work(num_vertices: int) -> int:
    """Return the work of `block_arrays` and `tail_counts`."""
    return 100_000 + 2 * num_vertices**3


def block_arrays(adjacency: np.ndarray) -> np.ndarray:
    """Return [6, m, m] for `adjacency` [m, m] float64: A, A^T, A A, (A A)^T, the mutual arcs R, and A R."""
    two, mutual = _product(adjacency, adjacency), adjacency * adjacency.T
    return np.stack([adjacency, adjacency.T, two, two.T, mutual, _product(adjacency, mutual)])


def tail_counts(arrays: np.ndarray, lengths: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return the counts [t + 4, m, m] of lengths 1 to t + 4 from what `walk_prefixes` left."""
    out, _, two, *_ = arrays
    hit_one, hit_two, hit_three, hit_four, turns, loss = sums
    first = _product(lengths[-1], out) - hit_one
    second = _product(lengths[-1], two) - _product(hit_one, out) - hit_two
    third = _product(second, out) - turns - hit_three
    fourth = _product(third, out) - loss - hit_four
    np.fill_diagonal(fourth, 0.0)
    return np.concatenate([lengths[1:], np.stack([first, second, third, fourth])])


@kernel
def walk_prefixes(ptr, col, arrays, symmetric, begin, end, meters, task, cap, limit, lengths, sums):
    """Visit the paths of 0 to t edges from vertices begin..end-1 of a block; sum up how those of t edges go on.

    `ptr, col` are the arcs of the block, `arrays` those of `block_arrays`. Adds to `lengths` [t + 1, m, m] and `sums`
    [6, m, m], in rows begin..end-1, and the work to `meters[task]`. Returns False if it stopped because the sum of
    `meters` exceeded `cap` or `limit[0]` became negative.
    """
    m, depth = len(ptr) - 1, len(lengths) - 1
    reach, triangles, work = np.zeros((depth + 1, m)), np.zeros((depth + 1, m)), np.zeros((8, m))
    path, cursor = np.empty(depth + 1, np.int64), np.empty(depth + 1, np.int64)
    free, alone, cost = np.ones(m), np.empty(1, np.int64), np.empty(depth + 1)
    for j in range(m):
        for w in range(m):
            reach[0, j] += arrays[4, j, w]
            triangles[0, j] += arrays[2, j, w] * arrays[0, w, j]
    spent = 0.0
    for root in range(begin, end):
        d, node = 0, root
        if depth == 0:
            alone[0] = root
            for j in range(m):
                work[0, j] = arrays[0, root, j]
            _close(root, path, 0, alone, 0, 1, arrays, symmetric, free, reach, triangles, work, cost, lengths, sums)
            spent += _LEAF + _NODE + m * (_LEAF_VERTEX + _NODE_VERTEX)
            d = -1
        while d >= 0:
            path[d], cursor[d] = node, ptr[node]
            free[node] = 0.0
            lengths[d, root, node] += 1.0
            _two_steps(node, path, d, arrays, symmetric, work)
            _remove(node, d, arrays, symmetric, work, reach, triangles)
            d += 1
            spent += _NODE + m * _NODE_VERTEX
            if d == depth:
                first, last = ptr[node], ptr[node + 1]
                _close(
                    root,
                    path,
                    d,
                    col,
                    first,
                    last,
                    arrays,
                    symmetric,
                    free,
                    reach,
                    triangles,
                    work,
                    cost,
                    lengths,
                    sums,
                )
                spent += (last - first) * (_LEAF + m * _LEAF_VERTEX) + m * d
                if spent > _STRIDE:
                    meters[task] += int(spent)
                    spent = 0.0
                    if limit[0] < 0 or meters.sum() > cap:
                        return False
                cursor[d - 1] = ptr[node + 1]
            node = -1
            while node < 0 and d > 0:  # the next vertex after path[d - 1], or after an earlier one
                e, stop = cursor[d - 1], ptr[path[d - 1] + 1]
                while e < stop and free[col[e]] == 0.0:
                    e += 1
                cursor[d - 1] = e + 1
                if e < stop:
                    node = col[e]
                else:
                    d -= 1
                    free[path[d]] = 1.0
            if node < 0:
                d = -1
    meters[task] += int(spent)
    return True


@kernel
def _close(root, path, d, col, first, last, arrays, symmetric, free, reach, triangles, work, cost, lengths, sums):
    """Go from the path of d vertices on to each free vertex u of col[first:last]; sum up the closed forms from there.

    work[0] holds y of the path. Sums over the ends u, of their a, y, z and so on, are those of the path's y, z, c.
    """
    m = len(free)
    for j in range(m):
        work[3, j] = work[0, j] * free[j]
    for j in range(m):
        work[7, j] = (reach[d, j] - 1.0) * free[j]
    work[4:7] = 0.0
    for e in range(first, last):
        u = col[e]
        if free[u] == 0.0:
            continue
        lengths[d, root, u] += 1.0
        _two_steps(u, path, d, arrays, symmetric, work)
        for s in range(d):  # what leads back to the path or to u does not count
            x = path[s]
            sums[0, root, x] += arrays[0, u, x]
            sums[1, root, x] += work[0, x]
            work[0, x] = 0.0
        sums[1, root, u] += work[0, u]
        work[0, u] = 0.0
        if symmetric:
            third, fourth = _add_end(u, arrays, work)
        else:
            third, fourth = _add_directed_end(u, arrays, work, free)
        sums[2, root, u] += third
        sums[3, root, u] += fourth
        for s in range(d):
            sums[3, root, path[s]] -= third * arrays[0, u, path[s]]
    if symmetric:
        for j in range(m):
            work[5, j] = 3.0 * work[5, j] + work[4, j]
        for j in range(m):
            work[6, j] = work[3, j]
    for j in range(m):
        work[6, j] = free[j] * reach[d, j] * work[3, j] - work[6, j]
    for j in range(m):
        sums[4, root, j] += work[6, j]
    for j in range(m):
        work[5, j] = free[j] * (reach[d, j] * work[4, j] - work[5, j])
    for j in range(m):
        work[5, j] += triangles[d, j] * free[j] * work[3, j]
    for j in range(m):
        sums[5, root, j] += work[5, j]
    for s in range(d):
        cost[s], fourth = _dots(path[s], arrays, work)
        sums[2, root, path[s]] += cost[s]
        sums[3, root, path[s]] += fourth
    for s in range(d):
        for i in range(d):
            sums[3, root, path[s]] -= cost[i] * arrays[0, path[i], path[s]]


@kernel(fastmath=REASSOCIATE)
def _add_end(u, arrays, work):
    """Add y to work[4] and a y to work[5]. Return the third and the fourth steps from u back to itself."""
    m = work.shape[1]
    for j in range(m):
        work[4, j] += work[0, j]
    third, fourth = 0.0, 0.0
    for j in range(m):
        a, y = arrays[0, u, j], work[0, j]
        work[5, j] += a * y
        third += a * y
        fourth += y * y - a * work[7, j]
    return third, fourth


@kernel(fastmath=REASSOCIATE)
def _add_directed_end(u, arrays, work, free):
    """Do what `_add_end` does where arcs may lead one way only, and add the mutual arcs of u to work[6]."""
    third, fourth = 0.0, 0.0
    work[2, u] = 0.0
    for j in range(work.shape[1]):
        a, into, y = arrays[0, u, j], arrays[1, u, j], work[0, j]
        work[4, j] += y
        work[5, j] += 2.0 * a * into * y + a * work[1, j] + work[2, j]
        work[6, j] += a * into * free[j]
        third += y * into
        fourth += y * work[1, j] - a * into * work[7, j]
    return third, fourth


@kernel
def _two_steps(node, path, d, arrays, symmetric, work):
    """Set work[0] to y for the path of d vertices that goes on to `node`; entries at vertices of it mean nothing.

    If directed, set work[1] to the steps back, sum_v A[j, v] A[v, node], and work[2] to sum_v a[v] R[v, j] as well.
    """
    m = work.shape[1]
    for j in range(m):
        work[0, j] = arrays[2, node, j]
    for s in range(d):
        x = path[s]
        if arrays[0, node, x] != 0.0:
            for j in range(m):
                work[0, j] -= arrays[0, x, j]
    if symmetric:
        return
    for j in range(m):
        work[1, j], work[2, j] = arrays[3, node, j], arrays[5, node, j]
    for s in range(d):
        x = path[s]
        if arrays[1, node, x] != 0.0:
            for j in range(m):
                work[1, j] -= arrays[1, x, j]
        if arrays[0, node, x] != 0.0:
            for j in range(m):
                work[2, j] -= arrays[4, x, j]


@kernel
def _remove(node, d, arrays, symmetric, work, reach, triangles):
    """Set row d + 1 of `reach` and `triangles`, r and T without `node`, from row d."""
    m = work.shape[1]
    for j in range(m):
        reach[d + 1, j] = reach[d, j] - arrays[4, node, j]
    if symmetric:
        for j in range(m):
            triangles[d + 1, j] = triangles[d, j] - 2.0 * arrays[0, node, j] * work[0, j]
    else:
        for j in range(m):
            cut = arrays[1, node, j] * work[0, j] + arrays[0, node, j] * work[1, j]
            triangles[d + 1, j] = triangles[d, j] - cut


@kernel(fastmath=REASSOCIATE)
def _dots(x, arrays, work):
    third, fourth = 0.0, 0.0
    for w in range(work.shape[1]):
        third += work[4, w] * arrays[1, x, w]
        fourth += work[4, w] * arrays[3, x, w] - work[6, w] * arrays[1, x, w]
    return third, fourth


@kernel
def _product(left, right):
    """Return left @ right, by one thread: a BLAS would wake all of its own."""
    product = np.zeros_like(left)
    for i in range(len(left)):
        for k in range(len(right)):
            factor = left[i, k]
            if factor != 0.0:
                for j in range(len(right)):
                    product[i, j] += factor * right[k, j]
    return product
