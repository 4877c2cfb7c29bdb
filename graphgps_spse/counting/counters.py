"""The counting methods by name."""

from difflib import get_close_matches
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
from graphgps_spse.errors import ConfigError

ENGINE_VERSION = 2
"""Raised by hand whenever a method's counts change for equal options: stored counts of another version are not used."""


class Counter(Protocol):
    """A counting method: one function, in COUNTERS."""

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
            limit: [1] int64, the most work in units of about a nanosecond. Kernels look at it often, since Ctrl-C
                lowers it below 0 from another thread.
            run_tasks: runs parts of the work on one large graph. Results must not depend on how it does that.
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
    """Return the counter of a method. Raises ConfigError that names the nearest and lists all."""
    if not isinstance(method, str) or method not in COUNTERS:
        close = get_close_matches(str(method), COUNTERS, n=1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise ConfigError(f"unknown counting method {method!r}.{hint} Known: {', '.join(sorted(COUNTERS))}")
    return COUNTERS[method]
