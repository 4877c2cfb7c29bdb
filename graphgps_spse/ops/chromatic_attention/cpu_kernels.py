"""Compiled kernels of chromatic self-attention for the CPU; cpu.py calls them chunk by chunk.

Shapes: N nodes, P pairs, R rows of a chunk's window, E edges, H heads, D = dim_head * H columns. Columns are ordered
(position in head, head), so that all loops over D are elementwise, and a sum over a head's positions adds rows of H
values. Row p of the batch is row r = p - chunk.window of the window. Symbols are those of contract.py; a name with
`grad_` is the gradient of the loss by that symbol.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.ops.numba_kernels import jit


class EdgeRows(NamedTuple):
    """The edges of a chunk: first..last-1."""

    rows: np.ndarray
    """[E] int64 pair rows of all edges, ascending."""
    first: int
    last: int


class Output(NamedTuple):
    """What `attend` writes and backward keeps: [N, D] each."""

    y: np.ndarray
    """The output."""
    share: np.ndarray
    """1 / sum_j exp(score_ij - max_score_i): alpha_ij is exp(score_ij - max_score_i) times it."""


class ChromaticKernels(NamedTuple):
    """The kernels for one head layout."""

    add_edges: Any
    take_edges: Any
    score: Any
    attend: Any
    attend_backward: Any
    add_late_keys: Any


@cache
def chromatic_kernels(dim_head: int, num_heads: int, is_shared: bool = False) -> ChromaticKernels:
    """Return the kernels with the head layout compiled in, so that inner loops have constant lengths.

    With `is_shared`, several threads visit the chunks, and `add_late_keys` must follow each `attend_backward`.
    """
    return ChromaticKernels(
        add_edges=_add_edges_kernel(dim_head, num_heads),
        take_edges=_take_edges_kernel(dim_head, num_heads),
        score=_score_kernel(dim_head, num_heads),
        attend=_attend_kernel(dim_head, num_heads),
        attend_backward=_attend_backward_kernel(dim_head, num_heads, is_shared),
        add_late_keys=_add_late_keys_kernel(dim_head, num_heads),
    )


def _add_edges_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def add_edges(chunk, edges, edge, pairs):
        """Add the rows of the chunk's edges to their pairs.

        chunk: Chunk. edges: EdgeRows. edge: [E, D]. pairs: [R, D] added to.
        """
        for e in range(edges.first, edges.last):
            x, y = pairs[edges.rows[e] - chunk.window], edge[e]
            for d in range(D):
                x[d] += y[d]

    return add_edges


def _take_edges_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def take_edges(chunk, edges, pairs, edge):
        """Copy the rows of the chunk's edges from their pairs.

        chunk: Chunk. edges: EdgeRows. pairs: [R, D]. edge: [E, D] written.
        """
        for e in range(edges.first, edges.last):
            x, y = pairs[edges.rows[e] - chunk.window], edge[e]
            for d in range(D):
                y[d] = x[d]

    return take_edges


def _score_kernel(dim_head: int, num_heads: int) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def score(chunk, rows, q, k, a, find_max, max_score, dot):
        """Turn A of a chunk into scores less the largest score of the query, by channel.

        chunk: Chunk. rows: QueryRows. q, k: [N, D]. a: [R, D] A, overwritten. find_max: whether to write the largest
        scores, or to read what an earlier call wrote. max_score: [N, D]. dot: [H] scratch.
        """
        zero = q.dtype.type(0)
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i] - chunk.window
            qi, ti = q[i], max_score[i]
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
            if find_max:
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

    return score


def _attend_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def attend(chunk, rows, v, w, b, mask, output):
        """Write the output of a chunk's queries.

        chunk: Chunk. rows: QueryRows. v: [N, D]. w: [R, D] exp(score - max_score). b: [R, D] B. mask: [P] dropout mask.
        output: Output, written.
        """
        zero, one = v.dtype.type(0), v.dtype.type(1)
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i]
            yi, si = output.y[i], output.share[i]
            for d in range(D):
                yi[d] = zero
                si[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                vj, x, bj, m = v[f + j], w[r], b[r], mask[p + j]
                for d in range(D):
                    si[d] += x[d]
                    yi[d] += m * x[d] * (vj[d] + bj[d])
            for d in range(D):
                si[d] = one / si[d]
                yi[d] *= si[d]

    return attend


def _attend_backward_kernel(dim_head: int, num_heads: int, is_shared: bool) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def attend_backward(chunk, rows, nodes, w, b, mask, output, grad_y, grad_nodes, grad_product, dots):
        """Write or add up the gradients of what `score` and `attend` read.

        With o_ij = m_ij (v_j + B_ij), the gradient of a score is alpha_ij (o_ij - y_i) grad_y_i, as y_i is the sum of
        alpha_ij o_ij over j.
        chunk: Chunk. rows: QueryRows. nodes: NodeArrays.
        w: [R, D] exp(score - max_score), overwritten with the gradient of the scores.
        b: [R, D] B, overwritten with its gradient. mask: [P] dropout mask. output: Output of the forward pass.
        grad_y: [N, D]. grad_nodes: NodeArrays, of which q is written and k and v are added to; with `is_shared`, except
        by the queries of a graph that begins before the chunk: `add_late_keys` adds theirs.
        grad_product: [D] scratch. dots: [R, H] gradients of <q_i, k_j>, written.
        """
        q, k, v = nodes
        grad_q, grad_k, grad_v = grad_nodes
        zero, g = q.dtype.type(0), grad_product
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i]
            qi, yi, si, gy, gq = q[i], output.y[i], output.share[i], grad_y[i], grad_q[i]
            is_late = is_shared and f < chunk.first
            for d in range(D):
                g[d] = gy[d] * si[d]
                gq[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, vj, x, bj, m, gk, gv = k[f + j], v[f + j], w[r], b[r], mask[p + j], grad_k[f + j], grad_v[f + j]
                dot = dots[r]
                for d in range(D):
                    weight = x[d] * g[d]
                    o = m * (vj[d] + bj[d])
                    x[d] = weight * (o - yi[d])
                    bj[d] = weight * m
                if not is_late:
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
                if not is_late:
                    for c in range(C):
                        for h in range(H):
                            gk[c * H + h] += dot[h] * qi[c * H + h]

    return attend_backward


def _add_late_keys_kernel(dim_head: int, num_heads: int) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def add_late_keys(chunk, rows, q, dots, grad_b, grad_k, grad_v):
        """Add up what `attend_backward` leaves out: gradients of the keys of a graph that begins before the chunk.

        The chunks of a graph do this in their order. chunk: Chunk. rows: QueryRows. q: [N, D]. dots: [R, H] and
        grad_b: [R, D] as `attend_backward` writes them. grad_k, grad_v: [N, D] added to.
        """
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i] - chunk.window
            if f >= chunk.first:
                break
            qi = q[i]
            for j in range(n):
                dot, bj, gk, gv = dots[p + j], grad_b[p + j], grad_k[f + j], grad_v[f + j]
                for d in range(D):
                    gv[d] += bj[d]
                for c in range(C):
                    for h in range(H):
                        gk[c * H + h] += dot[h] * qi[c * H + h]

    return add_late_keys
