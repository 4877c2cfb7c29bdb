"""What every script does around its work: logging, signals, errors as messages with an exit code."""

import faulthandler
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
from graphgps_spse.training.signals import exit_at_once, listen, restore


def run_command(
    work: Callable[[], int | None],
    *,
    stream: TextIO | None = None,
    level: int = logging.INFO,
    line: str = "%(message)s",
) -> int:
    """Do `work` and return the exit code: what it returns, or that of its SPSEError, whose message goes to stderr.

    What is logged from `level` on goes to `stream`, by default stdout. Where a signal or a full disk stops the work,
    the code is 75, and later signals are ignored: none of them is to spoil that code on the way out of the process.

    Signals end the process at once, as is right while `work` imports its libraries. Work that writes files or holds
    locks enters `stop_at_once()` or `StopSignals()` for it.
    """
    before, code = listen(exit_at_once), 0
    if not faulthandler.is_enabled():
        faulthandler.enable(2)  # a crash in compiled code, or of a mapped file that was cut short, says where
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file need not be text
    logging.basicConfig(level=level, format=line, stream=sys.stdout if stream is None else stream, force=True)
    try:
        code = work() or 0
        sys.stdout.flush()
    except SPSEError as err:
        code = exit_code_of(err)
        _say(f"{err}" if isinstance(err, StoppedError) else f"error: {err}")
    except (MemoryError, RuntimeError) as err:
        if not is_shortage(err):
            raise
        code = 1
        _say(f"error: out of memory: {str(err).partition(chr(10))[0] or type(err).__name__}")
    except KeyboardInterrupt:  # Ctrl-C for the second time
        code = RESUMABLE
        _say("stopped at once; the same command goes on from what was saved last")
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
    except OSError as err:
        if not is_full_disk(err):
            raise
        code = RESUMABLE
        _say(f"error: {err}; make room and run the same command again")
    finally:
        if code == RESUMABLE:
            listen(signal.SIG_IGN)
        else:
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
