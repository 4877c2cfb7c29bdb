"""Timing functions for benchmarks."""

import statistics
import time
from collections.abc import Callable
from typing import Any


def measure(work: Callable[[], Any], repeats: int) -> dict[str, float]:
    """Return CPU and wall-clock seconds of `work`: medians over `repeats` calls, after a first call without cache."""
    cpu, wall = [], []
    for _ in range(repeats + 1):
        begin_cpu, begin_wall = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - begin_cpu)
        wall.append(time.perf_counter() - begin_wall)
    return {
        "cpu_s": statistics.median(cpu[1:]),
        "cpu_min_s": min(cpu[1:]),
        "wall_s": statistics.median(wall[1:]),
        "first_cpu_s": cpu[0],
    }


def clock(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of `work` and its CPU seconds."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


def alternate(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return the CPU seconds of `repeats` calls of each function. Calls alternate, so that load affects all equally."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            seconds[name].append(clock(work)[1])
    return {name: values[1:] for name, values in seconds.items()}  # without the first call, which fills caches
