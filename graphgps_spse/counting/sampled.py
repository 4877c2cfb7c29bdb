"""Unbiased estimates of path counts from self-avoiding walks, with standard errors.

A walk from i that never revisits a node is a simple path, found with a known probability p. Every free neighbour j of
its end after t steps is the end of one path of t + 1 edges, credited with 1 / p (Rosenbluth and Rosenbluth 1955). The
mean over the walks from i is an unbiased estimate of row i of every S_k at once, and in an undirected graph S_k[i, j]
and S_k[j, i] are two independent estimates of one number.

What lowers the error of f(S) most is not to miss rare paths, those little longer than the shortest between far nodes:
- counts of lengths up to the distance + 2 are not sampled, they have closed forms (geodesic.py);
- a fixed share of the walks leans outward, each step weighted by a power of the distance from i that it gains. Both
  kinds of walk count as drawn from their mixture, 1 / (sum of share * p) (the balance heuristic, Veach and Guibas
  1995), which keeps the estimate unbiased and the weights bounded.
"""

from typing import NamedTuple

import numpy as np

from graphgps_spse.counting.geodesic import count_geodesic
from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import Spread
from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.jit import kernel

MIN_WALKS = 16  # of each source, however small the budget: fewer give no standard error worth the name
_TILT, _OUTWARD_SHARE = 3.0, 0.3  # measured on superpixel graphs; 2 to 8 and 0.2 to 0.5 do about as well
_STEP_WORK, _ARC_WORK = 50, 5  # nanoseconds: of one step, of each arc looked at
_SLICES = 16  # parts that a graph's sources are divided into for `spread`


class Estimate(NamedTuple):
    """Counts of one graph from `first_length` on."""

    counts: np.ndarray
    """[N * N, K - first_length + 1] float64."""
    standard_error: np.ndarray
    """The same shape; 0 where a closed form holds."""
    known: np.ndarray
    """[K - first_length + 1] bool: lengths at which a closed form holds for every pair."""
    work: int


def count_sampled(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    options: CountOptions,
    limit: np.ndarray,
    spread: Spread,
    counts_PK: np.ndarray,
) -> ChunkCounts | None:
    """Estimate the counts of graphs first..last-1, spending `options.budget` on each; lengths 1 to 3 are exact.

    Counts and standard errors are float64: the former are infinite beyond 1e300, the latter beyond 1e150.
    """
    error_PK, work = np.empty_like(counts_PK), 0
    status_GK = np.ones((last - first, max_length), np.int8)
    for g in range(first, last):
        estimate = estimate_graph(graphs, g, 1, max_length, options.budget, options.seed, limit, spread)
        work += 0 if estimate is None else estimate.work
        if estimate is None or work > limit[0]:
            return None
        rows = slice(graphs.pair_ptr[g] - graphs.pair_ptr[first], graphs.pair_ptr[g + 1] - graphs.pair_ptr[first])
        counts_PK[rows], error_PK[rows] = estimate.counts, estimate.standard_error
        status_GK[g - first, estimate.known] = 0
    return ChunkCounts(counts_PK, error_PK, status_GK, work)


def estimate_graph(
    graphs: SimpleGraphs,
    graph: int,
    first_length: int,
    max_length: int,
    budget: int,
    seed: int,
    limit: np.ndarray,
    spread: Spread,
) -> Estimate | None:
    """Estimate the counts of one graph from `first_length` on; None if `limit[0]` was lowered to less than the work."""
    ptr, col = graphs.arcs_of(graph)
    n = len(ptr) - 1
    shape = (n * n, max_length - first_length + 1)
    counts, variance = np.zeros(shape), np.zeros(shape)
    if n * len(col) > limit[0]:  # that much work at least: not to be done twice
        return None
    exact_KNN, known_KNN, distance, work = count_geodesic(ptr, col, max_length, first_length, limit)
    num_walks = plan_walks(n, len(col), max_length, budget)
    if work < 0 or work + num_walks * walk_work(n, len(col), max_length) > limit[0]:
        return None
    bounds = np.linspace(0, n, min(n, _SLICES) + 1).astype(np.int64)
    key = np.uint64(graph_key(ptr, col, np.uint64(seed)))

    def sample(part: int) -> None:
        sources = bounds[part], bounds[part + 1]
        _walk_from(ptr, col, distance, first_length, max_length, num_walks, key, *sources, limit, counts, variance)

    spread(sample, len(bounds) - 1)
    if limit[0] < 0:
        return None
    if not graphs.directed:
        _symmetrize(n, counts, variance)
    known = known_KNN[first_length - 1 :].reshape(shape[1], n * n).T
    np.copyto(counts, exact_KNN[first_length - 1 :].reshape(shape[1], n * n).T, where=known)
    np.copyto(variance, 0.0, where=known)
    work += num_walks * walk_work(n, len(col), max_length)
    return Estimate(counts, np.sqrt(variance), np.all(known, axis=0), work)


def plan_walks(num_nodes: int, num_arcs: int, max_length: int, budget: int) -> int:
    """Return how many walks of each source a budget pays for."""
    return max(MIN_WALKS, budget // walk_work(num_nodes, num_arcs, max_length))


def walk_work(num_nodes: int, num_arcs: int, max_length: int) -> int:
    """Return the predicted work of one walk from every node of a graph."""
    return max(1, max_length * (num_nodes * _STEP_WORK + num_arcs * _ARC_WORK))


@kernel
def graph_key(ptr, col, seed):
    """Return a number that depends on the seed and the arcs, so that estimates do not depend on the graph's place."""
    key = seed ^ np.uint64(0x9E3779B97F4A7C15)
    for values in (ptr, col):
        for value in values:
            key = _mix(key + np.uint64(0x9E3779B97F4A7C15) + np.uint64(value))
    return key


@kernel
def _mix(z):
    """Scramble 64 bits (the finalizer of splitmix64, Steele, Lea and Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def _walk_from(ptr, col, distance, first_length, max_length, num_walks, key, begin, end, limit, counts, variance):
    """Estimate rows begin..end-1 of all counts, and the variances of these means, from walks of each source."""
    n = len(ptr) - 1
    num_outward = min(num_walks - 1, int(num_walks * _OUTWARD_SHARE))
    share = num_outward / num_walks
    tilt = np.array([1.0 / _TILT, 1.0, _TILT])
    free = np.ones(n)
    path, choice, upto = np.empty(max_length, np.int64), np.empty(n, np.int64), np.empty(n)
    found = np.empty((max_length, n, 2))
    for i in range(begin, end):
        if limit[0] < 0:
            return
        state = _mix(key + _mix(np.uint64(i) + np.uint64(1)))
        away = distance[i]
        found[:] = 0.0
        free[i] = 0.0
        infinite, blurred = max_length, max_length  # steps from which on counts or their variances are out of range
        for walk in range(num_walks):
            plain, outward = 1.0, 1.0  # probability of the path so far under each kind of walk
            u, steps = i, 0
            while True:
                probability = (1.0 - share) * plain + share * outward
                if probability < 1e-300:  # more paths than float64 holds
                    infinite = min(infinite, steps)
                    break
                weight = 1.0 / probability
                square = weight * weight
                if weight > 1e150:
                    square, blurred = 0.0, min(blurred, steps)
                num_free, total = 0, 0.0
                for e in range(ptr[u], ptr[u + 1]):
                    v = col[e]
                    is_free = free[v]
                    found[steps, v, 0] += weight * is_free
                    found[steps, v, 1] += square * is_free
                    total += is_free * tilt[max(away[v] - away[u], -1) + 1]
                    choice[num_free], upto[num_free] = v, total
                    num_free += int(is_free)
                steps += 1
                if num_free == 0 or steps == max_length:
                    break
                state += np.uint64(0x9E3779B97F4A7C15)
                random = (_mix(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)  # in [0, 1), 53 bits
                if walk < num_outward:
                    c, random = 0, random * total
                    while c < num_free - 1 and upto[c] <= random:
                        c += 1
                else:
                    c = int(random * num_free)
                v = choice[c]
                plain /= num_free
                outward *= tilt[max(away[v] - away[u], -1) + 1] / total
                u = v
                free[u] = 0.0
                path[steps] = u
            for t in range(1, steps):
                free[path[t]] = 1.0
        free[i] = 1.0
        for k in range(first_length, max_length + 1):
            for j in range(n):
                mean = found[k - 1, j, 0] / num_walks
                counts[i * n + j, k - first_length] = mean
                square = found[k - 1, j, 1] / num_walks - mean * mean
                variance[i * n + j, k - first_length] = max(square, 0.0) / (num_walks - 1)
                if k > blurred and mean > 0.0:
                    variance[i * n + j, k - first_length] = np.inf
                if k > infinite and away[j] > 0:
                    counts[i * n + j, k - first_length] = variance[i * n + j, k - first_length] = np.inf


@kernel
def _symmetrize(n, counts, variance):
    """Replace both estimates of a pair of nodes by their mean."""
    for i in range(n):
        for j in range(i):
            for k in range(counts.shape[1]):
                mean = 0.5 * (counts[i * n + j, k] + counts[j * n + i, k])
                spread = 0.25 * (variance[i * n + j, k] + variance[j * n + i, k])
                counts[i * n + j, k] = counts[j * n + i, k] = mean
                variance[i * n + j, k] = variance[j * n + i, k] = spread
