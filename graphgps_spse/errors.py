"""The errors that users see. Each says what is wrong, where, and what to do; main.py turns them into exit codes."""

import errno
import math

RESUMABLE = 75
"""Exit code: nothing was wrong with the work, and the same command goes on."""


class SPSEError(Exception):
    """Something a user can act on. `exit_code` is what main.py returns for it."""

    exit_code = 1


class ConfigError(SPSEError):
    """A configuration file or override that cannot be used."""

    exit_code = 2


class DataError(SPSEError):
    """A graph, data set or target that cannot be used."""

    exit_code = 2


class RunDirError(SPSEError):
    """A run directory that belongs to something else or cannot be written."""

    exit_code = 2


class CheckpointError(SPSEError):
    """A checkpoint that cannot be saved, or none left that can be trusted."""

    exit_code = 2


class StoreError(SPSEError):
    """Stored encodings that cannot be written, or not be trusted."""

    exit_code = 2


class LaunchError(SPSEError):
    """A run that cannot be started or submitted on this machine."""

    exit_code = 2


class ShortageError(SPSEError):
    """Memory ran out in the middle of the work."""


class DivergedError(SPSEError):
    """Training produced a loss or gradient that is not finite."""


class LoaderError(SPSEError):
    """A process that builds batches was lost. The same command goes on; 75 where something from outside ended it."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ProcessLostError(SPSEError):
    """Another process of the same run has ended. Its own exit code tells what kind of end that was; this one's is 1."""


class StoppedError(SPSEError):
    """A signal stopped the run; the same command resumes it."""

    exit_code = RESUMABLE


def is_full_disk(err: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, says that a disk or a quota is full."""
    while err is not None:
        if isinstance(err, OSError) and err.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        err = err.__cause__
    return False


def exit_code_of(err: SPSEError) -> int:
    """Return what a program that ends with this error returns: RESUMABLE where a disk was full, as it may have room."""
    return RESUMABLE if is_full_disk(err) else err.exit_code


def show(value: object, limit: int = 80) -> str:
    """Return a value as messages show it: its repr, cut where it is long.

    Python itself refuses to print whole numbers of many digits.
    """
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text):,} characters)"
