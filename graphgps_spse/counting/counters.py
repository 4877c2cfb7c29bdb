"""The counting methods by name."""

from typing import Protocol

import numpy as np

from graphgps_spse.counting.auto import count_auto
from graphgps_spse.counting.exact.exact_counts import count_exact
from graphgps_spse.counting.graphs import SimpleGraphs
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.paper.lower_bounds import count_dag
from graphgps_spse.counting.parallel import RunTasks
from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.counting.sampled.estimates import count_sampled
from graphgps_spse.errors import ConfigError, did_you_mean

ENGINE_VERSION = 2
"""Version of the counts, raised by hand when the counts of a method change. Stored counts of others are not used."""


class Counter(Protocol):
    """A counting method: a function in COUNTERS."""

    def __call__(
        self,
        graphs: SimpleGraphs,
        first: int,
        last: int,
        max_length: int,
        options: CountOptions,
        limit: np.ndarray,
        run_tasks: RunTasks,
        counts_PK: np.ndarray,
        /,
    ) -> ChunkCounts | None:
        """Count the paths of graphs first..last-1; return None if that takes more work than `limit[0]`.

        Args:
            graphs: the graphs.
            first: the first graph to count.
            last: the graph after the last one.
            max_length: K, the most edges of a path.
            options: each method reads those that options.READ_BY names.
            limit: [1] int64, the largest amount of work, in units of about a nanosecond. Kernels check it often: Ctrl-C
                sets it to -1 from another thread.
            run_tasks: runs parts of the work on one large graph, perhaps on several threads. Results must not depend on
                the order of the parts.
            counts_PK: [P, K] float64 zeros for the pairs of these graphs, to be filled.

        """


COUNTERS: dict[str, Counter] = {
    "auto": count_auto,
    "dag": count_dag,
    "exact": count_exact,
    "sampled": count_sampled,
}
"""Counters by the name of their method."""


def get_counter(method: str) -> Counter:
    """Return the counter of a method. For an unknown method, raises ConfigError that lists the known ones."""
    if not isinstance(method, str) or method not in COUNTERS:
        known = ", ".join(sorted(COUNTERS))
        raise ConfigError(
            f"unknown counting method {method!r}.{did_you_mean(str(method), sorted(COUNTERS))} Known: {known}"
        )
    return COUNTERS[method]
