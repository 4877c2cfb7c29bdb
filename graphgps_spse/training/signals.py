"""Signals that ask a run to stop become a flag, which the trainer reads between steps."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from graphgps_spse.errors import StoppedError

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT")
"""What schedulers and people send: SLURM before a time limit or preemption, a container's stop, Ctrl-C."""


def listen(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> dict[signal.Signals, Any]:
    """Let `handler` hear every signal of NAMES; return the handlers before. Only the main thread can, others get {}."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    return {number: signal.signal(number, handler) for number in numbers}


def restore(before: dict[signal.Signals, Any]) -> None:
    """Put back the handlers that `listen` returned."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def stop_at_once() -> Iterator[None]:
    """End the block with StoppedError where a signal arrives in it: for work that leaves nothing to save.

    On its way out of the block the signal is a KeyboardInterrupt: an Exception could be caught by a library that it
    happens to arrive in, such as a logging handler, and be lost.
    """

    def hear(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = listen(hear)
    try:
        yield
    except KeyboardInterrupt as err:
        if not err.args:  # not ours: a second Ctrl-C during training
            raise
        raise StoppedError(f"stopped by {err.args[0]}; the same command goes on") from None
    finally:
        restore(before)


class StopSignals:
    """Within a `with` block, signals set `received` and nothing else; a second Ctrl-C stops at once.

    Only the main thread can hear signals; in another thread the block changes nothing.
    """

    def __init__(self) -> None:
        self.received = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        self.received = ""
        self._before = listen(self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        restore(self._before)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
