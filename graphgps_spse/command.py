"""What every script does around its work: logging, errors as messages with an exit code, signals that stop at once."""

import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from graphgps_spse.errors import RESUMABLE, SPSEError, StoppedError, exit_code_of, is_full_disk
from graphgps_spse.memory import is_shortage
from graphgps_spse.training.signals import listen, restore, stop_at_once


def run_command(
    work: Callable[[], None], *, stream: TextIO | None = None, level: int = logging.INFO, line: str = "%(message)s"
) -> int:
    """Do `work` and return the exit code: 0, or that of the SPSEError that ended it, whose message goes to stderr.

    What is logged from `level` on goes to `stream`, by default stdout. Where a signal or a full disk stops the work,
    the code is 75, and later signals are ignored: none of them is to spoil that code on the way out of the process.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file need not be text
    logging.basicConfig(level=level, format=line, stream=sys.stdout if stream is None else stream, force=True)
    before, code = listen(signal.SIG_IGN), 0
    try:
        with stop_at_once():
            work()
        sys.stdout.flush()
    except SPSEError as err:
        code = exit_code_of(err)
        _say(f"{err}" if isinstance(err, StoppedError) else f"error: {err}")
    except (MemoryError, RuntimeError) as err:
        if not is_shortage(err):
            raise
        code = 1
        _say(f"error: out of memory: {str(err).partition(chr(10))[0] or type(err).__name__}")
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
    except OSError as err:
        if not is_full_disk(err):
            raise
        code = RESUMABLE
        _say(f"error: {err}; make room and run the same command again")
    finally:
        if code != RESUMABLE:
            restore(before)
    _give_up_unwritten(sys.stdout)
    return code


def _say(line: str) -> None:
    """Write a line to stderr, if it can be written: the exit code tells the same."""
    with suppress(OSError):
        sys.stderr.write(line + "\n")
    _give_up_unwritten(sys.stderr)


def _give_up_unwritten(stream: TextIO) -> None:
    """Drop what a stream cannot write: Python would try again at its end, and return 120 in place of our exit code."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _reader_is_gone() -> bool:
    """Whether who reads what is printed, e.g. head, has seen enough: no other broken pipe is an end like any other."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in asked.poll(0))
