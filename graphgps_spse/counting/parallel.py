"""Work on many graphs: chunks that fit the cache, threads, progress and Ctrl-C."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from numbers import Integral

import numpy as np

from graphgps_spse.errors import DataError

Progress = Callable[[int], None]
"""Called with the number of graphs finished since the last call, by the thread that started the work."""

RunTasks = Callable[[Callable[[int], None], int], None]
"""run_tasks(task, n) calls task(0) .. task(n - 1), perhaps at the same time, and returns when all are done."""


def check_threads(num_threads: int) -> None:
    """Raise DataError unless `num_threads` is a whole number of at least 1."""
    if isinstance(num_threads, bool) or not isinstance(num_threads, Integral) or num_threads < 1:
        raise DataError(f"num_threads must be at least 1, got {num_threads!r}")


def run_in_turn(task: Callable[[int], None], num_tasks: int) -> None:
    """Run tasks one after the other on the calling thread: a RunTasks."""
    for number in range(num_tasks):
        task(number)


def run_on_threads(num_threads: int) -> RunTasks:
    """Return a RunTasks for `num_threads` threads. Kernels inside must release the GIL and stop at the limit."""

    def run_tasks(task: Callable[[int], None], num_tasks: int) -> None:
        with ThreadPoolExecutor(num_threads) as pool:
            futures = [pool.submit(task, number) for number in range(num_tasks)]
            for future in futures:
                future.result()

    return run_in_turn if num_threads == 1 else run_tasks


def chunk_bounds(pair_ptr: np.ndarray, max_pairs: int) -> list[tuple[int, int]]:
    """Return consecutive ranges (first, last) of graphs of at most `max_pairs` pairs, or one graph, each."""
    bounds, first, num_graphs = [], 0, len(pair_ptr) - 1
    while first < num_graphs:
        last = int(np.searchsorted(pair_ptr, pair_ptr[first] + max_pairs, side="right")) - 1
        bounds.append((first, max(first + 1, last)))
        first = bounds[-1][1]
    return bounds


def for_each_chunk(
    process: Callable[[int, int], None],
    bounds: Sequence[tuple[int, int]],
    *,
    num_threads: int = 1,
    progress: Progress | None = None,
    stop: Callable[[], None] | None = None,
) -> None:
    """Call process(first, last) for every chunk on `num_threads` threads; kernels inside must release the GIL.

    The calling thread only waits, so that it can receive Ctrl-C during a long kernel. After Ctrl-C, or if a chunk
    fails, pending chunks are dropped and `stop` is called to end the running ones. Raises DataError for fewer than one
    thread.
    """
    check_threads(num_threads)
    with ThreadPoolExecutor(num_threads) as pool:
        futures: list[Future[None]] = []
        try:  # from the first submit on: leaving the pool waits for what runs, so nothing may get past `stop`
            for first, last in bounds:
                futures.append(pool.submit(process, first, last))
            for future, (first, last) in zip(futures, bounds, strict=True):
                future.result()
                if progress is not None:
                    progress(last - first)
        finally:
            if stop is not None:
                stop()
            for future in futures:
                future.cancel()
