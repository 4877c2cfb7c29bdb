"""Method "auto": every length exact that half the budget pays for, the others estimated with what is left."""

from dataclasses import dataclass

import numpy as np

from graphgps_spse.counting.exact import count_within, predict_work
from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.parallel import Spread
from graphgps_spse.counting.records import ChunkCounts, Status
from graphgps_spse.counting.sampled import estimate_graph, plan_walks, walk_work


@dataclass(frozen=True)
class CountPlan:
    """What "auto" will do with one graph, as predicted; a search that outgrows its half ends at a shorter length."""

    num_nodes: int
    num_arcs: int
    max_length: int
    budget: int
    """Nanoseconds, about, as all work below."""
    exact_work_K: np.ndarray
    """[K] float64: predicted work of exact counts up to each length."""
    exact_lengths: int
    """Lengths 1 .. exact_lengths are counted exactly."""
    num_walks: int
    """Walks of each source for the others; 0 if there are none."""
    walks_work: int

    def __str__(self) -> str:
        degree = self.num_arcs / max(self.num_nodes, 1)
        lines = [
            f"graph of {self.num_nodes} nodes, degree {degree:.1f}, paths of up to {self.max_length} edges, "
            f"budget {self.budget / 1e9:.3g} s"
        ]
        work = self.exact_work_K[max(self.exact_lengths, 1) - 1]
        lines.append(f"lengths 1 to {self.exact_lengths}: exact, predicted {work / 1e9:.2g} s")
        if self.exact_lengths < self.max_length:
            following, wanted = self.exact_lengths + 1, self.exact_work_K[self.exact_lengths] / 1e9
            lines.append(
                f"lengths {following} to {self.max_length}: estimated from {self.num_walks} walks of each node, "
                f"predicted {self.walks_work / 1e9:.2g} s (length {following} exactly: {wanted:.2g} s)"
            )
        return "\n".join(lines)


def plan_graph(graphs: SimpleGraphs, graph: int, max_length: int, options: CountOptions) -> CountPlan:
    """Predict what `count_auto` does with one graph."""
    ptr, col = graphs.arcs_of(graph)
    n, num_arcs = len(ptr) - 1, len(col)
    exact_work_K = predict_work(graphs, graph, max_length)
    exact_lengths = max(1, int(np.count_nonzero(exact_work_K <= _half(options))))
    left = _left(options, exact_work_K, exact_lengths)
    num_walks = plan_walks(n, num_arcs, max_length, left) if exact_lengths < max_length else 0
    work = num_walks * walk_work(n, num_arcs, max_length)
    return CountPlan(n, num_arcs, max_length, options.budget, exact_work_K, exact_lengths, num_walks, work)


def count_auto(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    options: CountOptions,
    limit: np.ndarray,
    spread: Spread,
    counts_PK: np.ndarray,
) -> ChunkCounts | None:
    """Count graphs first..last-1 exactly as far as the budget allows and estimate the rest."""
    exact = count_within(graphs, first, last, max_length, _half(options), limit, spread, counts_PK)
    if exact is None or not np.count_nonzero(exact.status_GK):
        return exact
    status_GK, work = exact.status_GK, exact.work
    error_PK = np.zeros_like(counts_PK)
    for g in np.flatnonzero(status_GK[:, -1] == Status.NOT_COUNTED.code).tolist():
        length = 1 + int(np.argmax(status_GK[g] == Status.NOT_COUNTED.code))
        left = _left(options, predict_work(graphs, first + g, max_length), length - 1)
        estimate = estimate_graph(graphs, first + g, length, max_length, left, options.seed, limit, spread)
        work += 0 if estimate is None else estimate.work
        if estimate is None or work > limit[0]:
            return None
        rows = slice(*(graphs.pair_ptr[first + g : first + g + 2] - graphs.pair_ptr[first]))
        counts_PK[rows, length - 1 :], error_PK[rows, length - 1 :] = estimate.counts, estimate.standard_error
        status_GK[g, length - 1 :] = np.where(estimate.known, 0, Status.ESTIMATED.code)
    return ChunkCounts(counts_PK, error_PK, status_GK, work, exact.spans)


def _half(options: CountOptions) -> int:
    return max(1, options.budget // 2)


def _left(options: CountOptions, exact_work_K: np.ndarray, exact_lengths: int) -> int:
    """Return what is left of the budget after the exact lengths: by prediction, as that depends on the graph alone."""
    return options.budget - int(min(exact_work_K[exact_lengths - 1], _half(options)))
