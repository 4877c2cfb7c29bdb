"""Errors and their exit codes."""

import errno

import pytest

from graphgps_spse.errors import ConfigError, DivergedError, RunDirError, StoppedError, exit_code_of


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (DivergedError("x"), 1),
        (StoppedError("x"), 75),
        (caused(RunDirError("x"), OSError(errno.EACCES, "Permission denied")), 2),
        (caused(RunDirError("x"), OSError(errno.ENOSPC, "No space left on device")), 75),
        (caused(RunDirError("x"), caused(RunDirError("y"), OSError(errno.EDQUOT, "Disk quota exceeded"))), 75),
    ],
)
def test_a_full_disk_can_be_resumed_from(error, code):
    assert exit_code_of(error) == code
