"""What an encoding can see: whether it separates two graphs, in exact arithmetic.

A view of a graph is an int64 array [n, n, C]: channel c of the pair (i, j), where (i, i) is a node value. Rational and
irrational encodings are compared without rounding:

- random walks and resistances as residues modulo two primes: equal numbers have equal residues, so a separation that is
  found is real; two different numbers are confused with a chance of about 2^-50;
- heat kernels exp(-tL) at all t > 0 through the powers of L, and the Laplacian spectrum through its power sums, which
  determine each other;
- path counts as the integers that they are; a length with a count of 2^53 or more is left out.
"""

from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.counting import count_simple_paths
from graphgps_spse.errors import DataError

PRIMES = (67108859, 67108837)
"""The two largest primes below 2^26, so that sums of 2^11 products of residues fit into int64."""
MAX_NODES = 1 << 11


class Verdict(NamedTuple):
    """Whether two graphs differ in what they show."""

    nodes: bool
    """The multisets of node values differ."""
    pairs: bool
    """The multisets of values of ordered pairs differ."""
    refined: bool
    """Colour refinement, each node reading the values of all its pairs, ends in different multisets of colours."""


def path_view(adjacency: np.ndarray, max_length: int, *, method: str = "exact", **options: Any) -> np.ndarray:
    """Return [n, n, C] counts of simple paths of 1 .. C edges; C < `max_length` where `max_work` ends exact counting.

    `adjacency` is a symmetric bool array [n, n], `options` are those of `count_simple_paths`. On the diagonal stand the
    numbers of simple cycles of k + 1 edges through the node (the paper, Proposition 3), as no path leads from a node to
    itself. With `method` "dag" the counts are the lower bounds of the paper's Algorithms 1 to 3.
    """
    n = len(adjacency)
    found = count_simple_paths(np.stack(np.nonzero(adjacency)), n, max_length, method=method, **options)
    counts = found.counts.transpose(1, 2, 0)
    usable_K = np.isfinite(counts).all((0, 1)) & (np.nan_to_num(counts).max((0, 1), initial=0.0) < 2.0**53)
    num_lengths = max_length if usable_K.all() else int(np.argmin(usable_K))
    view = counts[..., :num_lengths].astype(np.int64)
    through = (view * adjacency[..., None]).sum(1)  # paths of k edges between the ends of an edge: cycles, met twice
    view[np.arange(n), np.arange(n), 1:] = through[:, 1:] // 2
    return view


def walk_view(adjacency: np.ndarray, num_powers: int) -> np.ndarray:
    """Return residues of P^0 .. P^(num_powers - 1), P = D^-1 A, [n, n, 2 num_powers]; isolated nodes have zero rows."""
    views = []
    for prime in PRIMES:
        inverse = np.array([pow(int(d), -1, prime) if d else 0 for d in adjacency.sum(1)])
        step = adjacency * inverse[:, None] % prime
        power, powers = np.eye(len(adjacency), dtype=np.int64), []
        for _ in range(num_powers):
            powers.append(power)
            power = power @ step % prime
        views.append(np.stack(powers, -1))
    return np.stack(views, -1).reshape(*adjacency.shape, -1)


def laplacian_powers(adjacency: np.ndarray) -> np.ndarray:
    """Return residues of L^1 .. L^(n - 1), L = D - A, [n, n, 2 (n - 1)]: what heat kernels at all times determine."""
    n, views = len(adjacency), []
    for prime in PRIMES:
        laplacian = (np.diag(adjacency.sum(1)) - adjacency.astype(np.int64)) % prime
        power, powers = laplacian, []
        for _ in range(max(1, n - 1)):
            powers.append(power)
            power = power @ laplacian % prime
        views.append(np.stack(powers, -1))
    return np.stack(views, -1).reshape(n, n, -1)


def spectrum_view(adjacency: np.ndarray) -> np.ndarray:
    """Return the power sums of the Laplacian eigenvalues in each node, [n, n, C]: they determine the spectrum."""
    n = len(adjacency)
    powers = laplacian_powers(adjacency)
    sums = np.trace(powers)
    view = np.zeros((n, n, len(sums)), np.int64)
    view[np.arange(n), np.arange(n)] = sums % np.tile(PRIMES, len(sums) // 2)
    return view


def resistance_view(adjacency: np.ndarray) -> np.ndarray:
    """Return residues of effective resistances, [n, n, 2]; -1 between components.

    R_ij = M_ii + M_jj - M_ij - M_ji with M the inverse of L + J, J all ones within each component.
    """
    n = len(adjacency)
    together = distance_view(adjacency)[..., 0] >= 0
    view = np.full((n, n, 2), -1, np.int64)
    for place, prime in enumerate(PRIMES):
        laplacian = np.diag(adjacency.sum(1)) - adjacency.astype(np.int64)
        inverse = _invert(laplacian + together, prime)
        own = np.diag(inverse)
        resistance = (own[:, None] + own[None, :] - inverse - inverse.T) % prime
        view[..., place] = np.where(together, resistance, -1)
    return view


def _invert(matrix: np.ndarray, prime: int) -> np.ndarray:
    """Return the inverse of a matrix modulo a prime, by Gauss and Jordan. Raises DataError where it has none."""
    n = len(matrix)
    rows = np.concatenate([matrix % prime, np.eye(n, dtype=np.int64)], axis=1)
    for column in range(n):
        pivots = np.flatnonzero(rows[column:, column])
        if not len(pivots):
            raise DataError(f"the Laplacian is singular modulo {prime}: choose another prime")
        pivot = column + pivots[0]
        rows[[column, pivot]] = rows[[pivot, column]]
        rows[column] = rows[column] * pow(int(rows[column, column]), -1, prime) % prime
        factor = rows[:, column].copy()
        factor[column] = 0
        rows = (rows - factor[:, None] * rows[column]) % prime
    return rows[:, n:]


def distance_view(adjacency: np.ndarray) -> np.ndarray:
    """Return shortest-path distances, [n, n, 1]; -1 without a path."""
    n = len(adjacency)
    distance, reached = np.full((n, n), -1), np.eye(n, dtype=bool)
    distance[reached] = 0
    frontier, length = reached.copy(), 0
    while frontier.any():
        frontier = (frontier.astype(np.int64) @ adjacency > 0) & ~reached
        length += 1
        distance[frontier] = length
        reached |= frontier
    return distance[..., None]


def degree_view(adjacency: np.ndarray) -> np.ndarray:
    """Return degrees on the diagonal and edges elsewhere, [n, n, 1]: its refinement is the 1-WL test."""
    return (adjacency + np.diag(adjacency.sum(1)))[..., None].astype(np.int64)


def edges_only(view: np.ndarray, adjacency: np.ndarray) -> np.ndarray:
    """Return a view in which only nodes and edges show their values: all other pairs are alike."""
    seen = adjacency | np.eye(len(adjacency), dtype=bool)
    return np.concatenate([view * seen[..., None], adjacency[..., None]], axis=-1)


def nodes_only(view: np.ndarray, adjacency: np.ndarray) -> np.ndarray:
    """Return a view in which only nodes show their values; of other pairs, edges differ from the rest."""
    own = view * np.eye(len(adjacency), dtype=np.int64)[..., None]
    return np.concatenate([own, adjacency[..., None]], axis=-1)


def compare(view_a: np.ndarray, view_b: np.ndarray) -> Verdict:
    """Compare two graphs by what an encoding shows of them, [n, n, C] each, with the same number of channels.

    Refinement starts from node values; a node's next colour is its colour and the multiset over all nodes j of (value
    of the pair (i, j), colour of j), in both graphs at once, until no colour class is divided any more.
    """
    sizes = len(view_a), len(view_b)
    if sizes[0] != sizes[1]:
        return Verdict(True, True, True)
    n = sizes[0]
    rows = np.concatenate([view.reshape(n * n, -1) for view in (view_a, view_b)])
    value = _label_rows(rows).reshape(2, n, n)
    node = value[:, np.arange(n), np.arange(n)]
    nodes, pairs = _differ(*node), _differ(*value.reshape(2, -1))
    colour, num_colours = _label_rows(node.reshape(-1, 1)).reshape(2, n), 0
    while (count := int(colour.max()) + 1) > num_colours:
        num_colours = count
        seen = np.sort(value * num_colours + colour[:, None, :], axis=2).reshape(2 * n, n)
        colour = _label_rows(np.concatenate([colour.reshape(-1, 1), seen], axis=1)).reshape(2, n)
    return Verdict(nodes, pairs, _differ(*colour))


def _label_rows(rows: np.ndarray) -> np.ndarray:
    """Return a number for each row, equal exactly where rows are equal."""
    packed = np.ascontiguousarray(rows, dtype=np.int64)
    whole = packed.view(np.dtype((np.void, packed.dtype.itemsize * packed.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1]


def _differ(a: np.ndarray, b: np.ndarray) -> bool:
    return not np.array_equal(np.sort(a, axis=None), np.sort(b, axis=None))
