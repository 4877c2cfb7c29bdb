"""Compiled kernels of GRIT's pairs for the CPU; cpu.py calls them chunk by chunk.

Shapes: N nodes, P pairs, R rows of a chunk's window, H heads, D = dim_head * H columns. Columns are ordered
(position in head, head), so that all loops over D are elementwise, and a sum over a head's positions adds rows of H
values. Row p of the batch is row r = p - chunk.window of the window. Symbols are those of contract.py; a name with
`grad_` is the gradient of the loss by that symbol.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.ops.numba_kernels import jit


class Attention(NamedTuple):
    """The attention weights of one layer, as backward keeps them: [P, H] each."""

    alpha: np.ndarray
    """Softmax over the keys of a query, before dropout."""
    clamped: np.ndarray
    """bool: whether the logit was clamped, so that no gradient passes."""
    mask: np.ndarray
    """Dropout mask; 1 everywhere for no dropout."""


class Sums(NamedTuple):
    """Sums over the keys of each query, or their gradients: [N, D] each."""

    value: np.ndarray
    """sum_j m alpha v"""
    pair: np.ndarray
    """sum_j m alpha h"""


class ForwardScratch(NamedTuple):
    """Scratch buffers of `attend`, one query at a time."""

    product: np.ndarray
    """[D] h * a of a pair."""
    max_logit: np.ndarray
    """[H] the largest logit of the query."""
    total: np.ndarray
    """[H] the softmax's denominator, then its inverse."""
    weight: np.ndarray
    """[H] m alpha of a pair."""


class WeightGradients(NamedTuple):
    """Gradients of weights, to which a chunk adds its own."""

    map_bias: np.ndarray
    """[2D]"""
    logit: np.ndarray
    """[D]"""


class BackwardScratch(NamedTuple):
    """Scratch buffers of `attend_backward`, one query at a time."""

    product: np.ndarray
    """[D] gradient of alpha, before the sum over a head's positions."""
    grad_s: np.ndarray
    """[D] gradient of s of a pair, then of q_i + k_j."""
    grad_q: np.ndarray
    """[D] gradient of q_i."""
    mean: np.ndarray
    """[H] sum_j alpha_ij grad_alpha_ij"""
    weight: np.ndarray
    """[H] m alpha of a pair."""
    grad_logit: np.ndarray
    """[largest number of keys, H] gradient of alpha of each key, then of its logit."""


class Update(NamedTuple):
    """What the update of pairs and its BatchNorm contribute to backward."""

    grad_u: np.ndarray
    """[P, D] gradient of the next u, from what reads it."""
    u: np.ndarray
    """[P, D] the next u."""
    offset: np.ndarray
    """[D] gradient of each row of the next u through the column means, apart from `slope`'s share."""
    slope: np.ndarray
    """[D] gradient of each row through the column variances, by the row's value."""


class GritKernels(NamedTuple):
    """The kernels for one head layout."""

    attend: Any
    update: Any
    add_moments: Any
    update_backward: Any
    attend_backward: Any
    add_late_keys: Any
    residual_backward: Any


@cache
def grit_kernels(dim_head: int, num_heads: int, is_shared: bool = False) -> GritKernels:
    """Return the kernels with the head layout compiled in, so that inner loops have constant lengths.

    With `is_shared`, several threads visit the chunks, and `add_late_keys` must follow each `attend_backward`.
    """
    return GritKernels(
        attend=_attend_kernel(dim_head, num_heads),
        update=_update_kernel(dim_head, num_heads),
        add_moments=_add_moments_kernel(dim_head, num_heads),
        update_backward=_update_backward_kernel(dim_head, num_heads),
        attend_backward=_attend_backward_kernel(dim_head, num_heads, is_shared),
        add_late_keys=_add_late_keys_kernel(dim_head, num_heads),
        residual_backward=_residual_backward_kernel(dim_head, num_heads),
    )


def _attend_kernel(dim_head: int, num_heads: int) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def attend(chunk, rows, nodes, wb, a, clamp, attention, h, sums, scratch):
        """Write h, attention weights and both sums for the queries of a chunk.

        chunk: Chunk. rows: QueryRows. nodes: NodeArrays. wb: [R, 2D] w and b of the window.
        a: [D] weights of the logits. clamp: bound of the logits.
        attention: Attention, of which `mask` is read and the rest written.
        h: [R, D] written. sums: Sums, written. scratch: ForwardScratch.
        """
        q, k, v = nodes
        alpha, clamped, mask = attention
        value, pair = sums
        product, max_logit, total, weight = scratch
        zero, one = q.dtype.type(0), q.dtype.type(1)
        limit = q.dtype.type(clamp)
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i]
            qi, oi, ti = q[i], value[i], pair[i]
            for head in range(H):
                max_logit[head] = -limit
                total[head] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, w, b, e, x, cut = k[f + j], wb[r, :D], wb[r, D:], h[r], alpha[p + j], clamped[p + j]
                for d in range(D):
                    s = (qi[d] + kj[d]) * w[d]
                    root = np.sqrt(abs(s))
                    z = (-root if s < zero else root) + b[d]
                    e[d] = zero if z <= zero else z
                for d in range(D):
                    product[d] = e[d] * a[d]
                for head in range(H):
                    y = zero
                    for c in range(C):
                        y += product[c * H + head]
                    y = limit if y > limit else y
                    y = -limit if y < -limit else y
                    x[head] = y
                    cut[head] = abs(y) >= limit
                    max_logit[head] = y if y > max_logit[head] else max_logit[head]
            for j in range(n):
                x = alpha[p + j]
                for head in range(H):
                    y = np.exp(x[head] - max_logit[head])
                    total[head] += y
                    x[head] = y
            for head in range(H):
                total[head] = one / total[head]
            for d in range(D):
                oi[d] = zero
                ti[d] = zero
            for j in range(n):
                x, m, e, vj = alpha[p + j], mask[p + j], h[p - chunk.window + j], v[f + j]
                for head in range(H):
                    x[head] *= total[head]
                    weight[head] = x[head] * m[head]
                for head in range(H):
                    for c in range(C):
                        d = c * H + head
                        oi[d] += weight[head] * vj[d]
                        ti[d] += weight[head] * e[d]

    return attend


def _update_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def update(chunk, mapped, u, scale, shift, out, local, square):
        """Write the chunk's rows of the next u and their column statistics.

        chunk: Chunk. mapped: [R, D] h out^T, without bias. u: [P, D]. scale, shift: [D] of e = u * scale + shift, the
        bias of `out` being part of shift. out: [P, D] the next u, written. local, square: [D] zeros; on return, column
        means and sums of squared deviations of the chunk's rows.
        """
        num_rows = chunk.stop - chunk.start
        for p in range(chunk.start, chunk.stop):
            x, y, z = u[p], mapped[p - chunk.window], out[p]
            for d in range(D):
                value = x[d] * scale[d] + shift[d] + y[d]
                z[d] = value
                local[d] += value
        each = u.dtype.type(1.0 / num_rows)
        for d in range(D):
            local[d] *= each
        for p in range(chunk.start, chunk.stop):
            z = out[p]
            for d in range(D):
                value = z[d] - local[d]
                square[d] += value * value

    return update


def _add_moments_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def add_moments(chunk, local, square, mean, squares):
        """Fold the column statistics of a chunk's rows into those of the rows before it (Chan et al. 1983).

        chunk: Chunk. local, square: [D] as `update` writes them. mean, squares: [D] float64, column means and sums of
        squared deviations of the rows before the chunk; on return, those of its own rows as well.
        """
        count, num_rows = chunk.start, chunk.stop - chunk.start
        for d in range(D):
            delta = local[d] - mean[d]
            mean[d] += delta * (num_rows / (count + num_rows))
            squares[d] += square[d] + delta * delta * (count * num_rows / (count + num_rows))

    return add_moments


def _update_backward_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def update_backward(chunk, update, u, grad, grad_shift, grad_scale):
        """Write the gradient of the chunk's rows of the next u, the share of its column statistics included.

        A row's share is offset + slope * row, as mean and variance are linear and quadratic in it.
        chunk: Chunk. update: Update. u: [P, D]. grad: [R, D] written. grad_shift, grad_scale: [D], added to.
        """
        for p in range(chunk.start, chunk.stop):
            g_out, y, x, g = update.grad_u[p], update.u[p], u[p], grad[p - chunk.window]
            for d in range(D):
                value = g_out[d] + update.offset[d] + update.slope[d] * y[d]
                g[d] = value
                grad_shift[d] += value
                grad_scale[d] += value * x[d]

    return update_backward


def _attend_backward_kernel(dim_head: int, num_heads: int, is_shared: bool) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def attend_backward(
        chunk, rows, nodes, wb, a, attention, grad_sums, grad_h, h, grad_nodes, grad_wb, grad_weights, late, scratch
    ):
        """Write or add up the gradients of what `attend` reads; h is computed again.

        chunk: Chunk. rows: QueryRows. nodes: NodeArrays. wb: [R, 2D] w and b of the window.
        a: [D] weights of the logits. attention: Attention of the forward pass.
        grad_sums: Sums. grad_h: [R, D] gradient from the update of pairs. h: [R, D] written.
        grad_nodes: NodeArrays, of which q is written and k and v are added to; with `is_shared`, except by the queries
        of a graph that begins before the chunk: `add_late_keys` adds theirs.
        grad_wb: [R, 2D] written; its first half holds the signed roots until their gradient takes their place.
        grad_weights: WeightGradients, added to. late: [R, D] written, for `add_late_keys`. scratch: BackwardScratch.
        """
        q, k, v = nodes
        alpha, clamped, mask = attention
        grad_q, grad_k, grad_v = grad_nodes
        grad_bias, grad_a = grad_weights
        product, gs, gq, mean, weight, grad_logit = scratch
        zero, half = q.dtype.type(0), q.dtype.type(0.5)
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i]
            qi, go, gt, gqi = q[i], grad_sums.value[i], grad_sums.pair[i], grad_q[i]
            is_late = is_shared and f < chunk.first
            for head in range(H):
                mean[head] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, vj, w, b, e, root = k[f + j], v[f + j], wb[r, :D], wb[r, D:], h[r], grad_wb[r, :D]
                gx, x, m = grad_logit[j], alpha[p + j], mask[p + j]
                for d in range(D):
                    s = (qi[d] + kj[d]) * w[d]
                    y = np.sqrt(abs(s))
                    root[d] = -y if s < zero else y
                for d in range(D):
                    z = root[d] + b[d]
                    e[d] = zero if z <= zero else z
                for d in range(D):
                    product[d] = go[d] * vj[d] + gt[d] * e[d]
                for head in range(H):
                    y = zero
                    for c in range(C):
                        y += product[c * H + head]
                    gx[head] = y
                for head in range(H):
                    gx[head] *= m[head]
                    mean[head] += x[head] * gx[head]
            for d in range(D):
                gq[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, w, e, ge = k[f + j], wb[r, :D], h[r], grad_h[r]
                gx, x, m, cut = grad_logit[j], alpha[p + j], mask[p + j], clamped[p + j]
                root, gz, gk, gv, wait = grad_wb[r, :D], grad_wb[r, D:], grad_k[f + j], grad_v[f + j], late[r]
                for head in range(H):
                    y = x[head] * (gx[head] - mean[head])
                    gx[head] = zero if cut[head] else y
                    weight[head] = x[head] * m[head]
                if not is_late:
                    for head in range(H):
                        for c in range(C):
                            gv[c * H + head] += weight[head] * go[c * H + head]
                for head in range(H):
                    for c in range(C):
                        grad_a[c * H + head] += gx[head] * e[c * H + head]
                for head in range(H):
                    for c in range(C):
                        gz[c * H + head] = weight[head] * gt[c * H + head] + gx[head] * a[c * H + head]
                for d in range(D):
                    gz[d] = zero if e[d] <= zero else gz[d] + ge[d]
                for d in range(D):
                    y = gz[d] * (half / abs(root[d]))
                    gs[d] = zero if root[d] == zero else y
                for d in range(D):
                    root[d] = gs[d] * (qi[d] + kj[d])
                for d in range(D):
                    gs[d] *= w[d]
                for d in range(D):
                    gq[d] += gs[d]
                if is_late:
                    for d in range(D):
                        wait[d] = gs[d]
                else:
                    for d in range(D):
                        gk[d] += gs[d]
                both = grad_wb[r]
                for d in range(2 * D):
                    grad_bias[d] += both[d]
            for d in range(D):
                gqi[d] = gq[d]

    return attend_backward


def _add_late_keys_kernel(dim_head: int, num_heads: int) -> Any:
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def add_late_keys(chunk, rows, attention, grad_value, late, grad_k, grad_v, weight):
        """Add up what `attend_backward` leaves out: gradients of the keys of a graph that begins before the chunk.

        The chunks of a graph do this in their order. chunk: Chunk. rows: QueryRows. attention: Attention.
        grad_value: [N, D]. late: [R, D]. grad_k, grad_v: [N, D] added to. weight: [H] scratch.
        """
        for i in range(chunk.first, chunk.last):
            f, n, p = rows.first_key[i], rows.num_keys[i], rows.first_row[i]
            if f >= chunk.first:
                break
            go = grad_value[i]
            for j in range(n):
                x, m, gs = attention.alpha[p + j], attention.mask[p + j], late[p - chunk.window + j]
                gk, gv = grad_k[f + j], grad_v[f + j]
                for head in range(H):
                    weight[head] = x[head] * m[head]
                for head in range(H):
                    for c in range(C):
                        gv[c * H + head] += weight[head] * go[c * H + head]
                for d in range(D):
                    gk[d] += gs[d]

    return add_late_keys


def _residual_backward_kernel(dim_head: int, num_heads: int) -> Any:
    D = dim_head * num_heads

    @jit
    def residual_backward(chunk, mapped, grad, scale, grad_u):
        """Write the gradient of the chunk's rows of u.

        chunk: Chunk. mapped: [R, D] gradient through w and b. grad: [R, D] gradient of the next u. scale: [D].
        grad_u: [P, D] written.
        """
        for p in range(chunk.start, chunk.stop):
            g, y, x = grad[p - chunk.window], mapped[p - chunk.window], grad_u[p]
            for d in range(D):
                x[d] = g[d] * scale[d] + y[d]

    return residual_backward
