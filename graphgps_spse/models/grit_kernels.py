"""Compiled CPU kernels of GRIT's attention on packed pairs; grit_fused.py calls them chunk by chunk.

Columns of every [*, D] array are ordered (position in head, head), so that all loops over D = dim_head * num_heads are
elementwise, and a sum over a head's positions adds rows of num_heads values. `chunk` is a pairs.Chunk and `r` a row in
its window; `first`, `size` and `row` are PairLayout's arrays. Arrays at the end of an argument list are scratch.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.models.fused import jit


class Kernels(NamedTuple):
    """The kernels for one head layout."""

    attend: Any
    update: Any
    update_backward: Any
    attend_backward: Any
    residual_backward: Any


@cache
def kernels(dim_head: int, num_heads: int) -> Kernels:
    """Return the kernels with the head layout compiled in, so that inner loops have constant lengths."""
    D, H, C = dim_head * num_heads, num_heads, dim_head

    @jit
    def attend(
        chunk, first, size, row, q, k, v, wb, a, keep, clamp, alpha, ehat, o, t, product, top, total
    ):  # fmt: skip
        """Write e^ of the chunk's receivers, their softmax weights and both weighted sums over senders.

        GRIT (Ma et al. 2023): s = (q_i + k_j) * w_ij; e^ = relu(sign(s) sqrt|s| + b_ij); logits <e^, a> by head,
        clamped; o_i = sum_j alpha_ij v_j; t_i = sum_j alpha_ij e^_ij. `wb` holds w and b of the chunk side by side.
        A weight whose logit was cut is stored negative: that is how backward knows.
        """
        zero, one = q.dtype.type(0), q.dtype.type(1)
        limit = q.dtype.type(clamp)
        for i in range(chunk.first, chunk.last):
            f, n, p = first[i], size[i], row[i]
            qi, oi, ti = q[i], o[i], t[i]
            for h in range(H):
                top[h] = -limit
                total[h] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, w, b, e, x = k[f + j], wb[r, :D], wb[r, D:], ehat[r], alpha[p + j]
                for d in range(D):
                    s = (qi[d] + kj[d]) * w[d]
                    root = np.sqrt(abs(s))
                    z = (-root if s < zero else root) + b[d]
                    e[d] = zero if z <= zero else z
                for d in range(D):
                    product[d] = e[d] * a[d]
                for h in range(H):
                    y = zero
                    for c in range(C):
                        y += product[c * H + h]
                    y = limit if y > limit else y
                    y = -limit if y < -limit else y
                    x[h] = y
                    top[h] = y if y > top[h] else top[h]
            for j in range(n):
                x = alpha[p + j]
                for h in range(H):
                    y = np.exp(x[h] - top[h])
                    total[h] += y
                    x[h] = -y if abs(x[h]) >= limit else y
            for h in range(H):
                total[h] = one / total[h]
            for d in range(D):
                oi[d] = zero
                ti[d] = zero
            for j in range(n):
                x, m, e, vj = alpha[p + j], keep[p + j], ehat[p - chunk.window + j], v[f + j]
                for h in range(H):
                    x[h] *= total[h]
                    top[h] = abs(x[h]) * m[h]
                for h in range(H):
                    for c in range(C):
                        d = c * H + h
                        oi[d] += top[h] * vj[d]
                        ti[d] += top[h] * e[d]

    @jit
    def update(chunk, mapped, u, scale, shift, out, mean, m2):
        """Write the chunk's rows of e + O_e e^ and fold their column means and squared deviations into `mean`, `m2`.

        `mean` and `m2` are those of the rows before the chunk (Chan et al. 1983).
        """
        count, rows = chunk.start, chunk.stop - chunk.start
        local, square = np.zeros(D, u.dtype), np.zeros(D, u.dtype)
        for p in range(chunk.start, chunk.stop):
            x, y, z = u[p], mapped[p - chunk.window], out[p]
            for d in range(D):
                value = x[d] * scale[d] + shift[d] + y[d]
                z[d] = value
                local[d] += value
        each = u.dtype.type(1.0 / rows)
        for d in range(D):
            local[d] *= each
        for p in range(chunk.start, chunk.stop):
            z = out[p]
            for d in range(D):
                value = z[d] - local[d]
                square[d] += value * value
        for d in range(D):
            delta = local[d] - mean[d]
            mean[d] += delta * (rows / (count + rows))
            m2[d] += square[d] + delta * delta * (count * rows / (count + rows))

    @jit
    def update_backward(chunk, grad_out, out, offset, slope, u, grad, grad_shift, grad_scale):
        """Write the chunk's gradient of e + O_e e^, its batch statistics' share included, and add up column sums.

        The share of a row is offset + slope * row: mean and variance are linear and quadratic in it.
        """
        for p in range(chunk.start, chunk.stop):
            g_out, y, x, g = grad_out[p], out[p], u[p], grad[p - chunk.window]
            for d in range(D):
                value = g_out[d] + offset[d] + slope[d] * y[d]
                g[d] = value
                grad_shift[d] += value
                grad_scale[d] += value * x[d]

    @jit
    def attend_backward(
        chunk, first, size, row, q, k, v, wb, a, keep, alpha, grad_o, grad_t, grad_ehat,
        ehat, grad_q, grad_k, grad_v, grad_wb, grad_b, grad_a, product, gs, gq, mean, weight, grad_x,
    ):  # fmt: skip
        """Write the gradient of `wb` over the chunk and add those of q, k, v, a and the bias; recomputes e^.

        `grad_ehat` is the gradient of e^ from the pair update. The first half of `grad_wb` holds the signed roots
        until their gradient takes their place.
        """
        zero, half = q.dtype.type(0), q.dtype.type(0.5)
        for i in range(chunk.first, chunk.last):
            f, n, p = first[i], size[i], row[i]
            qi, go, gt, gqi = q[i], grad_o[i], grad_t[i], grad_q[i]
            for h in range(H):
                mean[h] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, vj, w, b, e, root = k[f + j], v[f + j], wb[r, :D], wb[r, D:], ehat[r], grad_wb[r, :D]
                gx, x, m = grad_x[j], alpha[p + j], keep[p + j]
                for d in range(D):
                    s = (qi[d] + kj[d]) * w[d]
                    y = np.sqrt(abs(s))
                    root[d] = -y if s < zero else y
                for d in range(D):
                    z = root[d] + b[d]
                    e[d] = zero if z <= zero else z
                for d in range(D):
                    product[d] = go[d] * vj[d] + gt[d] * e[d]
                for h in range(H):
                    y = zero
                    for c in range(C):
                        y += product[c * H + h]
                    gx[h] = y
                for h in range(H):
                    gx[h] *= m[h]
                    mean[h] += abs(x[h]) * gx[h]
            for d in range(D):
                gq[d] = zero
            for j in range(n):
                r = p - chunk.window + j
                kj, w, e, ge, gx, x, m = (
                    k[f + j],
                    wb[r, :D],
                    ehat[r],
                    grad_ehat[r],
                    grad_x[j],
                    alpha[p + j],
                    keep[p + j],
                )
                root, gz, gk, gv = grad_wb[r, :D], grad_wb[r, D:], grad_k[f + j], grad_v[f + j]
                for h in range(H):
                    y = x[h] * (gx[h] - mean[h])
                    gx[h] = zero if x[h] < zero else y
                    weight[h] = abs(x[h]) * m[h]
                for h in range(H):
                    for c in range(C):
                        gv[c * H + h] += weight[h] * go[c * H + h]
                for h in range(H):
                    for c in range(C):
                        grad_a[c * H + h] += gx[h] * e[c * H + h]
                for h in range(H):
                    for c in range(C):
                        gz[c * H + h] = weight[h] * gt[c * H + h] + gx[h] * a[c * H + h]
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
                for d in range(D):
                    gk[d] += gs[d]
                both = grad_wb[r]
                for d in range(2 * D):
                    grad_b[d] += both[d]
            for d in range(D):
                gqi[d] = gq[d]

    @jit
    def residual_backward(chunk, mapped, grad, scale, grad_u):
        """Write the chunk's gradient of u: through the residual, and `mapped`, through the attention."""
        for p in range(chunk.start, chunk.stop):
            g, y, x = grad[p - chunk.window], mapped[p - chunk.window], grad_u[p]
            for d in range(D):
                x[d] = g[d] * scale[d] + y[d]

    return Kernels(attend, update, update_backward, attend_backward, residual_backward)
