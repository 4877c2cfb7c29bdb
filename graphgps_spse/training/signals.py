"""Signals that ask a process to stop, with a handler for each kind of work.

`exit_at_once` is for imports, which leave nothing behind; `stop_at_once` for work that must close files and locks;
`StopSignals` for training, which saves a checkpoint first.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from graphgps_spse.errors import RESUMABLE, LoaderError, StoppedError

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT")
"""Signals of SLURM before a time limit or a preemption, of a container that stops, and of Ctrl-C."""


def listen(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> dict[signal.Signals, Any]:
    """Install `handler` for all signals of NAMES; return the earlier handlers. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    return {number: signal.signal(number, handler) for number in numbers}


def restore(before: dict[signal.Signals, Any]) -> None:
    """Install the handlers that `listen` returned."""
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End the process with one line and exit code 75. A handler, for `listen`.

    Raises nothing: a library that is being imported could turn an exception into another one, or lose it.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(RuntimeError, ValueError, OSError):  # in the middle of a write, closed, or full
            stream.flush()
    with suppress(OSError):
        os.write(2, f"{_stopped_by(signal.Signals(number).name)}\n".encode())
    os._exit(RESUMABLE)


class StopSignals:
    """Within a `with` block, signals set `received` and nothing else; a second Ctrl-C stops at once.

    Only the main thread can hear signals; in another thread the block changes nothing.
    """

    def __init__(self) -> None:
        self.received = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        self._before = listen(self._hear)
        outer = (getattr(handler, "__self__", None) for handler in self._before.values())
        # A signal that a library lost in the block around this one still counts.
        self.received = next((block.received for block in outer if isinstance(block, StopSignals)), "")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        restore(self._before)
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name


class stop_at_once(StopSignals):  # noqa: N801 (used as a function)
    """End the `with` block with StoppedError where a signal arrives in it: for work that leaves nothing to save.

    On its way out of the block the signal is a KeyboardInterrupt: an Exception could be caught by a library that it
    happens to arrive in, such as a logging handler, and be lost. Later signals do not disturb the way out.
    """

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        super().__exit__(kind, error, traceback)
        if self.received and error is not None:  # whatever a library has made of the KeyboardInterrupt
            raise StoppedError(_stopped_by(self.received), self.received) from None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not self.received:
            self.received = signal.Signals(number).name
            raise KeyboardInterrupt(self.received)


def interruption(
    received: str, place: str, *, saved: bool, lost: LoaderError | None = None
) -> StoppedError | LoaderError:
    """Return the error of a training that was interrupted in `place` by a signal, or by the loss of a loader process.

    `saved`: whether a checkpoint of this place was written. If both happened, the signal is the cause: a scheduler
    sends it to the loader processes, too.
    """
    continues = f"the same command continues from {'there' if saved else 'the last checkpoint'}"
    if received or lost is None:
        return StoppedError(f"stopped by {received} in {place}; {continues}", received)
    return LoaderError(f"{lost}. Stopped in {place}; {continues}", lost.exit_code)


def _stopped_by(name: str) -> str:
    return f"stopped by {name}; the same command continues"
