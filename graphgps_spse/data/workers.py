"""Processes that build batches or graphs for a run: they end with it, and one that is lost is explained in a line."""

import ctypes
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import DataLoader

from graphgps_spse.errors import RESUMABLE, LoaderError
from graphgps_spse.seeding import seed_worker

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""What a person, a scheduler or the kernel without memory sends; other signals are a crash."""

_PR_SET_PDEATHSIG = 1


def begin_worker() -> None:
    """Prepare a forked process: it ends when its parent does, and leaves the signals that stop a run to the parent.

    A killed run would otherwise leave processes behind that hold its locks.
    """
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return

    def watch() -> None:  # where the kernel is not Linux
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def begin_loader_worker(worker_id: int) -> None:
    """Prepare and seed a process of torch's DataLoader."""
    begin_worker()
    seed_worker(worker_id)


def batches_of(loader: DataLoader, timeout: float) -> Iterator[Any]:
    """Yield what a DataLoader with persistent processes yields.

    Raises LoaderError, from where the next batch is asked for, if a process has ended, or gives no batch within
    `timeout` seconds (0: waits for ever).
    """
    with _explaining_losses(loader, timeout):
        iterator = _start(loader)
    while True:
        with _explaining_losses(loader, timeout):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


def _start(loader: DataLoader) -> Iterator[Any]:
    """Return iter(loader) without torch's handler for the death of a child.

    The handler raises wherever the program happens to be, such as in the middle of an optimiser step.
    """
    if threading.current_thread() is not threading.main_thread():  # torch sets none either
        return iter(loader)
    before = signal.getsignal(signal.SIGCHLD)
    try:
        return iter(loader)
    finally:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


@contextmanager
def _explaining_losses(loader: DataLoader, timeout: float) -> Iterator[None]:
    hung = threading.Event()

    def give_up() -> None:
        hung.set()
        _kill(_workers_of(loader))  # which torch notices

    watch = threading.Timer(timeout, give_up)
    watch.daemon = True
    if timeout:
        watch.start()
    try:
        yield
    except (RuntimeError, OSError, EOFError) as err:  # EOFError and the like where a batch was on its way
        workers = _workers_of(loader)
        ending = multiprocessing.connection.wait([worker.sentinel for worker in workers], timeout=2)
        lost = [worker for worker in workers if worker.sentinel in ending]
        if not lost:
            raise
        lost[0].join()  # its files are closed a moment before its exit code is known
        _kill(workers)
        loader._iterator._shutdown = True  # type: ignore[union-attr]  # else torch would wait for them
        if hung.is_set():
            raise LoaderError(f"no loader process has built a batch within {timeout:g} s (worker_timeout)") from err
        raise _explain(lost[0]) from err
    finally:
        watch.cancel()


def _workers_of(loader: DataLoader) -> Sequence[BaseProcess]:
    return getattr(loader._iterator, "_workers", [])


def _kill(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join()


def _explain(worker: BaseProcess) -> LoaderError:
    code = worker.exitcode or 0
    if -code in FROM_OUTSIDE:
        name = signal.Signals(-code).name
        return LoaderError(
            f"loader process {worker.pid} was killed by {name}, by hand or because memory ran out; fewer num_workers "
            "take less memory",
            RESUMABLE,
        )
    end = f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    bus_error = "a file of the data set was cut short, or /dev/shm is full"
    cause = bus_error if -code == signal.SIGBUS else "num_workers=0 shows where"
    return LoaderError(f"loader process {worker.pid} {end}; {cause}")
