"""Compiled CPU kernels of CSA's attention on packed pairs; csa_fused.py calls them chunk by chunk.

The conventions are those of grit_kernels.py: columns are ordered (position in head, head), `chunk` is a pairs.Chunk and
`r` a row in its window.
"""

from functools import cache
from typing import Any, NamedTuple

from graphgps_spse.models.fused import jit


class Kernels(NamedTuple):
    """The kernels for one head layout."""

    add_edges: Any
    take_edges: Any
    score: Any
    attend: Any
    attend_backward: Any


@cache
def kernels(dim_head: int, num_heads: int) -> Kernels:
    """Return the kernels with the head layout compiled in, so that inner loops have constant lengths."""
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def add_edges(chunk, rows, first, last, edge, a):
        """Add the rows of the chunk's edges, first..last-1, to theirs in its window."""
        for e in range(first, last):
            x, y = a[rows[e] - chunk.window], edge[e]
            for d in range(D):
                x[d] += y[d]

    @jit
    def take_edges(chunk, rows, first, last, a, edge):
        """Write the rows of the chunk's edges from those in its window."""
        for e in range(first, last):
            x, y = a[rows[e] - chunk.window], edge[e]
            for d in range(D):
                y[d] = x[d]

    @jit
    def score(chunk, first, size, row, q, k, a, find_top, top, dot):
        """Turn A of the chunk into <q_i, k_j> + A_ij - top_i, top_i being the largest of a receiver, by channel.

        With `find_top` the tops are written first; without, they are read as an earlier call left them.
        """
        zero = q.dtype.type(0)
        for i in range(chunk.first, chunk.last):
            f, n, p = first[i], size[i], row[i] - chunk.window
            qi, ti = q[i], top[i]
            for j in range(n):
                kj, x = k[f + j], a[p + j]
                for h in range(H):
                    dot[h] = zero
                for c in range(C):
                    for h in range(H):
                        dot[h] += qi[c * H + h] * kj[c * H + h]
                for c in range(C):
                    for h in range(H):
                        x[c * H + h] += dot[h]
            if find_top:
                for d in range(D):
                    ti[d] = a[p, d]
                for j in range(n):
                    x = a[p + j]
                    for d in range(D):
                        ti[d] = ti[d] if ti[d] >= x[d] else x[d]
            for j in range(n):
                x = a[p + j]
                for d in range(D):
                    x[d] -= ti[d]

    @jit
    def attend(chunk, first, size, row, v, w, b, keep, y, share):
        """Write y_i = sum_j keep_ij alpha_ij (v_j + B_ij) and share_i = 1 / sum_j w_ij, alpha_ij = w_ij share_i."""
        zero, one = v.dtype.type(0), v.dtype.type(1)
        for i in range(chunk.first, chunk.last):
            f, n, p = first[i], size[i], row[i]
            yi, si = y[i], share[i]
            for d in range(D):
                yi[d] = zero
                si[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                vj, x, bj, m = v[f + j], w[r], b[r], keep[p + j]
                for d in range(D):
                    si[d] += x[d]
                    yi[d] += m * x[d] * (vj[d] + bj[d])
            for d in range(D):
                si[d] = one / si[d]
                yi[d] *= si[d]

    @jit
    def attend_backward(chunk, first, size, row, q, k, v, w, b, keep, y, share, grad_y, grad_q, grad_k, grad_v, g, dot):
        """Overwrite `w` with the gradient of the scores and `b` with that of B; write grad_q, add to grad_k, grad_v.

        With u_ij = keep_ij (v_j + B_ij): the score's gradient is alpha_ij (u_ij - y_i) grad_y_i, as y_i = sum_j
        alpha_ij u_ij.
        """
        zero = q.dtype.type(0)
        for i in range(chunk.first, chunk.last):
            f, n, p = first[i], size[i], row[i]
            qi, yi, si, gy, gq = q[i], y[i], share[i], grad_y[i], grad_q[i]
            for d in range(D):
                g[d] = gy[d] * si[d]
                gq[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, vj, x, bj, m, gk, gv = k[f + j], v[f + j], w[r], b[r], keep[p + j], grad_k[f + j], grad_v[f + j]
                for d in range(D):
                    weight = x[d] * g[d]
                    u = m * (vj[d] + bj[d])
                    x[d] = weight * (u - yi[d])
                    bj[d] = weight * m
                for d in range(D):
                    gv[d] += bj[d]
                for h in range(H):
                    s = zero
                    for c in range(C):
                        s += x[c * H + h]
                    dot[h] = s
                for c in range(C):
                    for h in range(H):
                        gq[c * H + h] += dot[h] * kj[c * H + h]
                for c in range(C):
                    for h in range(H):
                        gk[c * H + h] += dot[h] * qi[c * H + h]

    return Kernels(add_edges, take_edges, score, attend, attend_backward)
