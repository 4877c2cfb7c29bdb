"""Threads that share the chunks of a batch. The bits of a result do not depend on their number.

Chunks are the same for every number of threads. What chunks add to the same numbers, they add one after another, in
the order of the chunks. PyTorch's own threads would change bits: they divide the sums of some operations among them,
e.g. those of BatchNorm. So for models that walk chunks, PyTorch computes with one thread (`use_threads`), in the
calling thread and in all others. Other models use PyTorch's threads.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from threading import Condition, Lock
from typing import TypeVar

import torch

Item = TypeVar("Item")
Visit = Callable[[int, Item], Callable[[], None] | None]

_num_threads: ContextVar[int] = ContextVar("num_threads", default=1)


def use_threads(num_threads: int, device: torch.device, *, walks: bool) -> None:
    """Let the calling thread work with so many threads from now on.

    On a CPU, with a model that walks chunks (`walks`), `walk` uses them and PyTorch uses one. Otherwise they are
    PyTorch's.
    """
    shared = walks and device.type == "cpu"
    torch.set_num_threads(1 if shared else num_threads)
    _num_threads.set(num_threads if shared else 1)


@contextmanager
def threads_restored() -> Iterator[None]:
    """Restore what `use_threads` sets after the block."""
    of_torch, of_walks = torch.get_num_threads(), _num_threads.get()
    try:
        yield
    finally:
        torch.set_num_threads(of_torch)
        _num_threads.set(of_walks)


def shares_walk(items: Sequence) -> bool:
    """Whether `walk` visits several of these items at a time; if not, it visits them in their order."""
    return min(_num_threads.get(), len(items)) > 1


def walk(items: Sequence[Item], start: Callable[[], Visit[Item]]) -> None:
    """Visit all items, several at a time, without recording gradients.

    Each thread calls `start` once and its result for the items that it takes, with the number of the item. A visit may
    return a function for what must be done in order: these functions run one at a time, in the order of the items.
    An exception of any visit ends the walk and is raised.
    """
    if not shares_walk(items):
        with torch.no_grad():
            visit = start()
            for number, item in enumerate(items):
                in_order = visit(number, item)
                if in_order is not None:
                    in_order()
        return
    turns, numbers, taking = _Turns(), iter(range(len(items))), Lock()

    def take() -> int | None:
        with taking:
            return next(numbers, None)

    def work() -> None:
        complete = False
        try:
            with torch.no_grad():
                visit = start()
                while not turns.stopped and (number := take()) is not None:
                    in_order = visit(number, items[number])
                    if in_order is not None:
                        turns.await_turn(number)
                        in_order()
                    turns.end_turn(number)
            complete = True
        finally:
            if not complete:
                turns.stop()

    num_others = min(_num_threads.get(), len(items)) - 1
    pool = _pool(num_others, os.getpid())
    futures = [pool.submit(work) for _ in range(num_others)]
    try:
        work()
    finally:
        wait(futures)  # they write to memory of the caller
    for future in futures:
        future.result()


class _Turns:
    """Whose turn it is: item after item."""

    def __init__(self) -> None:
        self.stopped = False
        self._next, self._ended, self._changed = 0, set[int](), Condition()

    def await_turn(self, number: int) -> None:
        """Wait until the turns of all items before have ended, or until the walk is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._next == number)

    def end_turn(self, number: int) -> None:
        """End the turn of an item; one that has nothing to do in order need not wait for it."""
        with self._changed:
            self._ended.add(number)
            while self._next in self._ended:
                self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Let all threads end without further turns."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()


@cache  # kept for all walks of a process, as starting threads takes longer than a small chunk
def _pool(num_threads: int, process: int) -> ThreadPoolExecutor:
    """Return threads of this process (a forked one has none of its parent's), each with one thread of PyTorch."""
    return ThreadPoolExecutor(num_threads, "walk", initializer=torch.set_num_threads, initargs=(1,))
