"""What every script does around its work."""

import subprocess
import sys

import pytest

from graphgps_spse.command import run_command

TALK = """
import sys
from graphgps_spse.command import run_command
sys.exit(run_command(lambda: [print("line", number) for number in range(100_000)]))
"""


def test_a_reader_that_has_seen_enough_is_no_error():
    with subprocess.Popen([sys.executable, "-c", TALK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as talker:
        assert talker.stdout.readline() == b"line 0\n"
        talker.stdout.close()
        assert (talker.wait(60), talker.stderr.read()) == (0, b"")


def test_another_broken_pipe_is_an_error():
    """Say, that of a process which was killed."""

    def work():
        raise BrokenPipeError("a worker has gone")

    with pytest.raises(BrokenPipeError, match="a worker has gone"):
        run_command(work)
