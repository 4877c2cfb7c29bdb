"""How many CPU cores there are to share out."""

import os


def count_cores() -> int:
    """Return the number of cores that this process may use; where the system does not say, all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
