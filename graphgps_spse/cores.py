"""Number of CPU cores and threads."""

import os

from graphgps_spse.options import Options, option


class ThreadOptions(Options, section=""):
    """Option of the number of CPU threads."""

    num_threads: int = option(
        0,
        "CPU threads of counting and, on a CPU, of training; 0: one for each core that this process may use",
        at_least=0,
        at_most=4_096,
    )


def count_cores() -> int:
    """Return the number of cores available to this process, or all cores if the system does not report affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
