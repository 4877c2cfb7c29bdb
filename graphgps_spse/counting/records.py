"""Results of counting: counts, standard errors and the status of each length."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np


class Status(StrEnum):
    """Status of the counts of one length."""

    EXACT = "exact"
    ESTIMATED = "estimated"
    """Unbiased, with a standard error."""
    LOWER_BOUND = "lower_bound"
    NOT_COUNTED = "not_counted"
    """Counting takes more than the allowed work; the counts are NaN."""

    @property
    def code(self) -> int:
        """Code of this status in arrays: its position in list(Status)."""
        return STATUSES.index(self)


STATUSES = (Status.EXACT, Status.ESTIMATED, Status.LOWER_BOUND, Status.NOT_COUNTED)
"""All statuses by code, from the strongest to the weakest."""


@dataclass(frozen=True, repr=False)
class PathCounts:
    """Simple paths between all pairs of nodes of one graph, by length."""

    counts: np.ndarray
    """[K, N, N] float64: counts[k - 1, i, j] simple paths of k edges lead from node i to node j."""
    status: tuple[Status, ...]
    """[K]: the status of each length."""
    standard_error: np.ndarray | None
    """[K, N, N] float64 of estimated counts; None if nothing was estimated.

    0 where a count is exact, and where it is 0 because no walk found a path, though there may be one. Otherwise it is
    at least about 3 counts / number of walks from each node, also where all walks agree.
    """
    work: int
    """Cost in units of about a nanosecond. It is counted, not timed, and so the same on every machine."""
    method: str

    def __repr__(self) -> str:
        return f"PathCounts({self.counts.shape[1]} nodes, {_describe(self.status, self.counts)}, method {self.method})"


@dataclass(frozen=True, repr=False)
class FlatPathCounts:
    """Simple paths of many graphs, stored one after another."""

    counts: np.ndarray
    """[P, K]: pair (i, j) of graph g, with n nodes, is row pair_ptr[g] + i * n + j."""
    pair_ptr: np.ndarray
    """[G + 1] int64: the first row of each graph, and P."""
    status_GK: np.ndarray
    """[G, K] int8: the status of each graph and length, as a position in list(Status)."""
    standard_error: np.ndarray | None
    """[P, K], or None if nothing was estimated."""
    work: int
    """Cost of all graphs in units of about a nanosecond; counted, not timed."""
    method: str

    def __len__(self) -> int:
        return len(self.pair_ptr) - 1

    def __repr__(self) -> str:
        described = _describe(self.status, self.counts)
        return f"FlatPathCounts({len(self)} graphs, {len(self.counts)} pairs, {described}, method {self.method})"

    @property
    def status(self) -> tuple[Status, ...]:
        """[K]: for each length, the weakest status of all graphs."""
        return weakest(self.status_GK)

    def counts_of(self, graph: int) -> np.ndarray:
        """Return the counts of one graph as [K, N, N] (a view)."""
        return as_matrices(self.counts[self.pair_ptr[graph] : self.pair_ptr[graph + 1]])


class ChunkCounts(NamedTuple):
    """Result of a counter for consecutive graphs. Pairs are in the order of FlatPathCounts, numbered from 0."""

    counts: np.ndarray
    """[P, K] float64."""
    standard_error: np.ndarray | None
    """[P, K] float64."""
    status_GK: np.ndarray
    """[G, K] int8, positions in list(Status)."""
    work: int
    spans: np.ndarray | None = None
    """[2, P] int16, if known: row p of the counts is zero outside columns spans[0, p] .. spans[1, p] - 1."""


def as_matrices(rows_PK: np.ndarray) -> np.ndarray:
    """Return the [N * N, K] rows of one graph as [K, N, N], without copying."""
    size = round(len(rows_PK) ** 0.5)
    return rows_PK.reshape(size, size, rows_PK.shape[1]).transpose(2, 0, 1)


def _describe(status: tuple[Status, ...], counts: np.ndarray) -> str:
    """Describe lengths and counts: "lengths 1 to 9, exact up to 4, then estimated, largest count 12"."""
    others = [s for s in STATUSES[1:] if s in status]
    num_exact = next((k for k, s in enumerate(status) if s != Status.EXACT), len(status))
    rest = (
        f"exact up to {num_exact}, then {' and '.join(s.replace('_', ' ') for s in others)}" if others else "all exact"
    )
    largest = np.fmax.reduce(counts, axis=None, initial=0.0)
    return f"lengths 1 to {len(status)}, {rest}, largest count {largest:.6g}"


def weakest(status_GK: np.ndarray) -> tuple[Status, ...]:
    """Return the weakest status of each length: exact, estimated, lower_bound or not_counted, in this order."""
    if not np.count_nonzero(status_GK):
        return (Status.EXACT,) * status_GK.shape[1]
    return tuple(STATUSES[code] for code in status_GK.max(0, initial=0))
