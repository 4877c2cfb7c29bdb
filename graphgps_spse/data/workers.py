"""Worker processes that build batches or graphs. They end with the run, and errors say why a worker was lost."""

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from graphgps_spse.errors import RESUMABLE, LoaderError
from graphgps_spse.seeding import seed_worker

EXTERNAL_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
"""Signals from a user, a scheduler or the out-of-memory killer. Other signals indicate a crash."""

_PR_SET_PDEATHSIG = 1


def begin_worker() -> None:
    """Prepare a process of a run: it ends with the run, and ignores the signals that stop a run.

    Otherwise a killed run would leave processes behind that hold its locks. The parent of such a process is the run, or
    a fork server, which lives as long as its children.
    """
    for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    started_by = multiprocessing.parent_process()  # not os.getppid(), which has changed if the parent is gone already
    parent = os.getppid() if started_by is None else started_by.pid
    is_from_server = multiprocessing.get_start_method(allow_none=True) == "forkserver" and os.getppid() != parent
    if started_by is not None and is_from_server:

        def end_with_run() -> None:
            started_by.join()
            os._exit(1)

        threading.Thread(target=end_with_run, daemon=True).start()
        return
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        return

    def watch() -> None:  # for systems without prctl
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class _Flag:
    """What a DataLoader uses of multiprocessing.Event, without its lock.

    If a worker is killed while it holds the lock of an event, all other processes wait for the lock for ever.
    """

    def __init__(self, context: BaseContext) -> None:
        self._value = context.RawValue(ctypes.c_bool, False)

    def is_set(self) -> bool:
        return bool(self._value.value)

    def set(self) -> None:
        self._value.value = True


def loader_context() -> BaseContext:
    """Return the context of multiprocessing for a DataLoader, whose event has no lock."""
    usual = multiprocessing.get_context()

    class LoaderContext(type(usual)):  # type: ignore[misc]
        def Event(self) -> _Flag:
            return _Flag(usual)

        def __reduce__(self) -> Any:  # a class in a function cannot be pickled
            return loader_context, ()

    return LoaderContext()


def begin_loader_worker(worker_id: int) -> None:
    """Prepare and seed a worker process of PyTorch's DataLoader."""
    begin_worker()
    seed_worker(worker_id)


def batches_of(loader: DataLoader, timeout: float) -> Iterator[Any]:
    """Yield the batches of a DataLoader with persistent workers.

    Raises LoaderError if a worker has ended, or if there is no batch within `timeout` seconds (0: no limit).
    """
    with _explain_lost_workers(loader, timeout):
        iterator = _start(loader)
    while True:
        with _explain_lost_workers(loader, timeout):
            try:
                batch = next(iterator)
            except StopIteration:
                return
        yield batch


def _start(loader: DataLoader) -> Iterator[Any]:
    """Return iter(loader) without PyTorch's handler of SIGCHLD, and without this process's end of the batches' pipe.

    The handler would raise at any point of the program, such as in the middle of an optimiser step. With the end of the
    pipe open, this process would wait for ever for the rest of a batch whose worker was killed while it sent it.
    """
    if threading.current_thread() is not threading.main_thread():  # PyTorch sets no handler in other threads
        return _without_writer(iter(loader))
    before = signal.getsignal(signal.SIGCHLD)
    try:
        return _without_writer(iter(loader))
    finally:
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)


def _without_writer(iterator: Any) -> Iterator[Any]:
    if not iterator._pin_memory:  # otherwise, PyTorch's own thread needs it to end
        iterator._worker_result_queue._writer.close()
    return iterator


@contextmanager
def _explain_lost_workers(loader: DataLoader, timeout: float) -> Iterator[None]:
    timed_out = threading.Event()

    def give_up() -> None:
        timed_out.set()
        _kill(_workers_of(loader))  # PyTorch then raises RuntimeError

    watch = threading.Timer(timeout, give_up)
    watch.daemon = True
    if timeout:
        watch.start()
    try:
        yield
    except (RuntimeError, OSError, EOFError) as err:  # OSError, EOFError: the worker ended while it sent a batch
        if timed_out.is_set():
            watch.join()  # two threads that wait for one process: the slower one would take it for alive
        workers = _workers_of(loader)
        ending = multiprocessing.connection.wait([worker.sentinel for worker in workers], timeout=2)
        lost = [worker for worker in workers if worker.sentinel in ending]
        if not lost:
            raise
        lost[0].join()  # the exit code is known slightly later than the sentinel
        _kill(workers)
        _forget_workers(loader._iterator)
        if timed_out.is_set():
            raise LoaderError(f"loader processes built no batch within {timeout:g} s (worker_timeout)") from err
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


def _forget_workers(iterator: Any) -> None:
    """Do what an iterator's own shutdown does at its end, without its messages to the workers, which are killed.

    PyTorch keeps the process ids of workers by the `id` of their iterator. An id that stays there would refuse a later
    iterator at the same address.
    """
    if iterator is None or iterator._shutdown:
        return
    iterator._shutdown = True
    if iterator._worker_pids_set:
        signal_handling._remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False


def _explain(worker: BaseProcess) -> LoaderError:
    code = worker.exitcode or 0
    if -code in EXTERNAL_SIGNALS:
        name = signal.Signals(-code).name
        return LoaderError(
            f"loader process {worker.pid} was killed by {name}, possibly because memory ran out; a lower num_workers "
            "takes less memory",
            RESUMABLE,
        )
    end = f"crashed with {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    bus_error = "a file of the data set was truncated, or /dev/shm is full"
    advice = bus_error if -code == signal.SIGBUS else "set num_workers=0 to see where"
    return LoaderError(f"loader process {worker.pid} {end}; {advice}")
