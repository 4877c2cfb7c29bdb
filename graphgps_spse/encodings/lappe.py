"""Laplacian eigenvectors of nodes (Dwivedi et al. 2023), as GraphGPS takes them: the pairs of smallest eigenvalue.

The solver is our own (Golub and Van Loan 2013, section 8.3: Householder reflections to a tridiagonal matrix, then
implicit QR steps), not LAPACK's. LAPACK's last bits depend on the processor and on its threads, and where an eigenvalue
is repeated, as in many symmetric graphs, they decide which basis of its eigenspace comes out. And only the eigenvectors
that are asked for are formed.
"""

from typing import Any, ClassVar, Self

import numpy as np

from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, Progress
from graphgps_spse.encodings.simple import for_each_simple
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.jit import kernel
from graphgps_spse.registry import encodings, nearest

LAPLACIANS = ("none", "sym", "rw")
NORMS = ("L1", "L2", "abs-max", "wavelength", "wavelength-asin", "wavelength-soft")
MAX_NODES = 20_000
"""Of one graph, whose Laplacian and rotations are dense in 64 bits: 12.8 GB."""


@encodings.register("LapPE")
class LapPE(Encoding):
    """Entries of the graph's first eigenvectors, and their eigenvalues, smallest first; the trivial one is included."""

    name: ClassVar[str] = "LapPE"

    def __init__(self, *, max_freqs: int, laplacian_norm: str = "none", eigvec_norm: str = "L2") -> None:
        """`max_freqs` is F, the number of eigenpairs. Raises ConfigError for an F below 1 and for unknown names.

        `laplacian_norm`: "none" is D - A, "sym" is I - D^-1/2 A D^-1/2 and "rw" is I - D^-1 A; a node without edges has
        0 on the diagonal of "none" and 1 on those of the others. `eigvec_norm` says what an eigenvector v of eigenvalue
        x is divided by: its L1 or L2 norm, its largest magnitude m ("abs-max"), m sqrt(x) 2 / pi ("wavelength"), or
        sqrt(x) sum(|v| softmax(|v|)) for a v of length 1 ("wavelength-soft"); "wavelength-asin" is
        asin(v / m) / sqrt(x). A zero eigenvalue counts as 1 there.
        """
        if max_freqs < 1:
            raise ConfigError(f"posenc_LapPE.eigen.max_freqs: {max_freqs} is below 1")
        for key, value, known in (
            ("laplacian_norm", laplacian_norm, LAPLACIANS),
            ("eigvec_norm", eigvec_norm, NORMS),
        ):
            if value not in known:
                hint = nearest(value, list(known))
                raise ConfigError(f"posenc_LapPE.eigen.{key}: unknown '{value}'.{hint} Known: {', '.join(known)}")
        self.max_freqs, self.laplacian_norm, self.eigvec_norm = max_freqs, laplacian_norm, eigvec_norm
        self.dim_pair, self.dim_node = 0, 2 * max_freqs

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_LapPE.eigen."""
        eigen = cfg.posenc_LapPE.eigen
        return cls(
            max_freqs=eigen.max_freqs, laplacian_norm=eigen.laplacian_norm.lower(), eigvec_norm=eigen.eigvec_norm
        )

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes for one graph: the rows, and in 64 bits the Laplacian and three numbers for each rotation."""
        return super().bytes_of_graph(num_nodes) + 4 * 8 * num_nodes**2

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph, symmetrised, without loops and duplicate edges: nodes get [N, 2 F].

        Columns 0..F-1 are the node's entries of the eigenvectors, F..2F-1 the eigenvalues of its graph, the same for
        all its nodes; NaN beyond the last eigenpair of a graph of fewer than F nodes. Of the entries of largest
        magnitude the first is positive: a sign must be chosen, and so it is the same everywhere; models draw it anew in
        training. Raises DataError for a graph of more than MAX_NODES nodes.
        """
        node_ptr = np.asarray(graphs.node_ptr)
        _check_sizes(node_ptr)
        node_NC = np.full((int(node_ptr[-1]), self.dim_node), np.nan, np.float32)
        laplacian, norm = LAPLACIANS.index(self.laplacian_norm), NORMS.index(self.eigvec_norm)

        def process(simple: SimpleGraphs, first: int, last: int, offset: int) -> None:
            rows_NC = node_NC[node_ptr[offset] :]
            _lappe_chunk(simple.node_ptr, *simple.links, first, last, laplacian, norm, rows_NC)

        for_each_simple(graphs, process, directed=False, num_threads=num_threads, progress=progress)
        record = {"max_freqs": self.max_freqs, "laplacian_norm": self.laplacian_norm, "eigvec_norm": self.eigvec_norm}
        return EncodingArrays(node=node_NC, record={"encoding": self.name, **record})


def _check_sizes(node_ptr: np.ndarray) -> None:
    sizes: np.ndarray = np.diff(node_ptr)
    if len(sizes) and int(sizes.max()) > MAX_NODES:
        graph = int(sizes.argmax())
        raise DataError(
            f"graph {graph}: LapPE keeps the Laplacian as a dense matrix, and {int(sizes[graph]):,} nodes are more "
            f"than its limit of {MAX_NODES:,}; encode subgraphs, or set posenc_LapPE.enable=False"
        )


@kernel
def _lappe_chunk(node_ptr, row_ptr, col, first, last, laplacian, norm, node_NC):
    num_freqs = node_NC.shape[1] // 2
    for g in range(first, last):
        start, n = node_ptr[g], node_ptr[g + 1] - node_ptr[g]
        m = min(n, num_freqs)
        matrix, scale = _laplacian(row_ptr[start : start + n + 1], col, n, laplacian)
        value, vector = _smallest_eigenpairs(matrix, m)
        for f in range(m):
            if laplacian == 2:  # D^-1/2 u is an eigenvector of I - D^-1 A where u is one of I - D^-1/2 A D^-1/2
                for i in range(n):
                    vector[i, f] *= scale[i]
            _normalise(vector[:, f], value[f], norm)
            for i in range(n):
                node_NC[start + i, f] = vector[i, f]
                node_NC[start + i, num_freqs + f] = value[f]


@kernel
def _laplacian(rows, col, n, laplacian):
    """Return D - A, or for the others I - D^-1/2 A D^-1/2, and D^-1/2 (1 for a node without edges)."""
    matrix, scale = np.zeros((n, n)), np.ones(n)
    for i in range(n):
        degree = rows[i + 1] - rows[i]
        matrix[i, i] = degree if laplacian == 0 else 1.0
        if laplacian > 0 and degree > 0:
            scale[i] = 1.0 / np.sqrt(degree)
    for i in range(n):
        for at in range(rows[i], rows[i + 1]):
            matrix[i, col[at]] = -scale[i] * scale[col[at]]
    return matrix, scale


@kernel
def _normalise(vector, value, norm):
    """Scale an eigenvector in place as `eigvec_norm` says, and choose its sign."""
    n, tiny = len(vector), 1e-12
    largest, total, square = 0.0, 0.0, 0.0
    for i in range(n):
        largest = max(largest, abs(vector[i]))
        total += abs(vector[i])
        square += vector[i] * vector[i]
    sign = 1.0
    for i in range(n):
        if abs(vector[i]) > (1.0 - 1e-6) * largest:  # equal magnitudes differ by their rounding
            sign = 1.0 if vector[i] > 0.0 else -1.0
            break
    root = np.sqrt(value) if value > tiny else 1.0
    if norm == 0:
        divisor = total
    elif norm == 1:
        divisor = np.sqrt(square)
    elif norm == 2:
        divisor = largest
    elif norm == 3:
        divisor = largest * root * 2.0 / np.pi
    elif norm == 4:
        divisor = root
        for i in range(n):
            vector[i] = np.arcsin(vector[i] / largest)
    else:
        weights, mean, length = 0.0, 0.0, np.sqrt(square)  # those of "rw" come with other lengths than 1
        for i in range(n):
            weight = np.exp((abs(vector[i]) - largest) / length)
            weights += weight
            mean += weight * abs(vector[i])
        divisor = mean / weights * root
    for i in range(n):
        vector[i] *= sign / divisor


@kernel
def _smallest_eigenpairs(matrix, m):
    """Return the m smallest eigenvalues of a Laplacian, ascending, and their eigenvectors [n, m]; uses up `matrix`.

    An eigenvalue within rounding of 0 is 0; none is negative.
    """
    n, bound = len(matrix), 0.0
    for i in range(n):
        bound = max(bound, np.abs(matrix[i]).sum())
    diagonal, beside, factor = _tridiagonalise(matrix, bound)
    rotation_at, cosine, sine = _diagonalise(diagonal, beside, bound)
    order = np.argsort(diagonal, kind="mergesort")[:m]
    value, vector = diagonal[order], np.zeros((n, m))
    for f in range(m):
        vector[order[f], f] = 1.0
        if value[f] < n * bound * 2.0**-51:
            value[f] = 0.0
    for r in range(len(rotation_at) - 1, -1, -1):
        c, s = cosine[r], sine[r]
        upper, lower = vector[rotation_at[r]], vector[rotation_at[r] + 1]
        for f in range(m):
            above = upper[f]
            upper[f] = c * above - s * lower[f]
            lower[f] = s * above + c * lower[f]
    product = np.empty(m)
    for k in range(n - 3, -1, -1):
        if factor[k] == 0.0:
            continue
        reflector = matrix[k, k + 1 :]
        product[:] = 0.0
        for i in range(n - k - 1):
            for f in range(m):
                product[f] += reflector[i] * vector[k + 1 + i, f]
        for i in range(n - k - 1):
            scaled = factor[k] * reflector[i]
            for f in range(m):
                vector[k + 1 + i, f] -= scaled * product[f]
    return value, vector


@kernel
def _tridiagonalise(matrix, bound):
    """Return the diagonal [n] and what stands beside it [n - 1] of Q^T matrix Q, and the factors t of Q's reflections.

    Q is the product of I - t v v^T; v of step k is left in row k of `matrix`, right of the diagonal.
    """
    n = len(matrix)
    diagonal, beside, factor = np.empty(n), np.empty(max(n - 1, 0)), np.zeros(n)
    product = np.empty(n)
    for k in range(n - 1):
        diagonal[k] = matrix[k, k]
        v = matrix[k, k + 1 :]
        size, rest = len(v), 0.0
        for j in range(1, size):
            rest += v[j] * v[j]
        if rest <= (1e-20 * bound) ** 2:  # as good as zero: the column is tridiagonal already
            beside[k] = v[0]
            continue
        norm = np.sqrt(v[0] * v[0] + rest)
        beside[k] = -norm if v[0] > 0.0 else norm
        v[0] -= beside[k]
        t = 2.0 / (v[0] * v[0] + rest)
        factor[k] = t
        w = product[:size]
        w[:] = 0.0
        for i in range(size):
            if v[i] != 0.0:  # Laplacians of sparse graphs stay sparse for some steps
                row, scaled = matrix[k + 1 + i, k + 1 :], t * v[i]
                for j in range(size):
                    w[j] += scaled * row[j]
        along = 0.0
        for j in range(size):
            along += w[j] * v[j]
        for j in range(size):
            w[j] -= 0.5 * t * along * v[j]
        for i in range(size):
            if v[i] != 0.0 or w[i] != 0.0:
                row, v_i, w_i = matrix[k + 1 + i, k + 1 :], v[i], w[i]
                for j in range(size):
                    row[j] -= v_i * w[j] + w_i * v[j]
    if n:
        diagonal[n - 1] = matrix[n - 1, n - 1]
    return diagonal, beside, factor


@kernel
def _diagonalise(diagonal, beside, bound):
    """Turn a symmetric tridiagonal matrix into its eigenvalues, in place in `diagonal`; return the rotations, in order.

    Rotation r acts on rows at[r] and at[r] + 1; a unit vector that all go over, the last first, becomes an eigenvector.
    Entries beside the diagonal count as zero below the rounding of the matrix, `bound` * 2^-53.
    """
    n, count, negligible = len(diagonal), 0, bound * 2.0**-53
    at, cosine, sine = np.empty(n * n + n, np.int64), np.empty(n * n + n), np.empty(n * n + n)
    high, num_steps = n - 1, 0
    while high > 0:
        if abs(beside[high - 1]) <= negligible:
            high -= 1
            continue
        low = high - 1
        while low > 0 and abs(beside[low - 1]) > negligible:
            low -= 1
        num_steps += 1
        assert num_steps <= 100 * n, "the QR iteration converges in a few steps for each eigenvalue"
        if count + high > len(at):
            at, cosine, sine = np.append(at, at), np.append(cosine, cosine), np.append(sine, sine)
        half, last = 0.5 * (diagonal[high - 1] - diagonal[high]), beside[high - 1]
        distance = np.sqrt(half * half + last * last)
        shift = diagonal[high] - last * last / (half + (distance if half >= 0.0 else -distance))
        x, bulge = diagonal[low] - shift, beside[low]
        for k in range(low, high):
            length = np.sqrt(x * x + bulge * bulge)
            c, s = (x / length, bulge / length) if length > 0.0 else (1.0, 0.0)
            if k > low:
                beside[k - 1] = length
            first, second, between = diagonal[k], diagonal[k + 1], beside[k]
            diagonal[k] = c * c * first + 2.0 * c * s * between + s * s * second
            diagonal[k + 1] = s * s * first - 2.0 * c * s * between + c * c * second
            beside[k] = c * s * (second - first) + (c * c - s * s) * between
            if k + 1 < high:
                x, bulge = beside[k], s * beside[k + 1]
                beside[k + 1] *= c
            at[count], cosine[count], sine[count] = k, c, s
            count += 1
    return at[:count], cosine[:count], sine[:count]
