"""What every script does around its work: logging, errors as messages with an exit code, signals that stop at once."""

import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TextIO

from graphgps_spse.errors import SPSEError
from graphgps_spse.training.signals import listen, restore, stop_at_once


def run_command(
    work: Callable[[], None], *, stream: TextIO | None = None, level: int = logging.INFO, line: str = "%(message)s"
) -> int:
    """Do `work` and return the exit code: 0, or that of the SPSEError that ended it, whose message goes to stderr.

    What is logged from `level` on goes to `stream`, by default stdout. Where a signal stops the work, the code is 75
    and later signals are ignored: none of them is to spoil that code on the way out of the process.
    """
    logging.basicConfig(level=level, format=line, stream=sys.stdout if stream is None else stream, force=True)
    before, code = listen(signal.SIG_IGN), 0
    try:
        with stop_at_once():
            work()
    except SPSEError as err:
        code = err.exit_code
        sys.stderr.write(f"error: {err}\n" if code != 75 else f"{err}\n")
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        if code != 75:
            restore(before)
    return code


def _reader_is_gone() -> bool:
    """Whether who reads what is printed, e.g. head, has seen enough: no other broken pipe is an end like any other."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in asked.poll(0))
