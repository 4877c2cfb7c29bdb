"""Signals that ask a run to stop become a flag, which the trainer reads between steps."""

import signal
import threading
from types import FrameType
from typing import Any

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGINT")
"""What schedulers and people send: SLURM before a time limit or preemption, a container's stop, Ctrl-C."""


class StopSignals:
    """Within a `with` block, signals set `received` and nothing else; a second Ctrl-C stops at once.

    Only the main thread can hear signals; in another thread the block changes nothing.
    """

    def __init__(self) -> None:
        self.received = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        self.received = ""
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name) for name in NAMES if hasattr(signal, name)):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == "SIGINT":
            raise KeyboardInterrupt
        self.received = signal.Signals(number).name
