"""What every script does around its work."""

import errno
import os
import subprocess
import sys

import pytest

from graphgps_spse.command import run_command
from graphgps_spse.errors import RunDirError

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


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_an_error_after_which_the_same_command_goes_on(capsys):
    def refused():
        try:
            full_disk()
        except OSError as err:
            raise RunDirError("results/x/0: cannot be written (No space left on device)") from err

    assert run_command(refused) == run_command(full_disk) == 75
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: results/x/0: cannot be written")
    assert (
        second.startswith("error: ") and "No space left on device" in second and "run the same command again" in second
    )


REFUSED = """
import sys
from graphgps_spse.command import run_command
from graphgps_spse.errors import RunDirError
def work():
    print("a line that the disk has no room for")
    if len(sys.argv) > 1:
        raise RunDirError(sys.argv[1])
sys.exit(run_command(work))
"""


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(("words", "code"), [(["no such folder"], 2), ([], 75)])
def test_output_to_a_full_disk_leaves_the_exit_code_as_it_is(words, code, buffered):
    """Python itself ends with 120 where it cannot write what was printed; that would count as the run's failure."""
    if words and not buffered:
        code = 75  # the first line was refused, before anything else happened
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", REFUSED, *words]
        done = subprocess.run(command, stdout=full, stderr=full, env=environment, check=False)
    assert done.returncode == code


def test_a_reader_that_has_gone_before_the_last_line_is_no_error():
    command = [sys.executable, "-c", "from graphgps_spse.command import run_command\n"
               "import sys; sys.exit(run_command(lambda: sys.stdin.readline() and print('late')))"]  # fmt: skip
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": ""}, **pipes) as talker:
        talker.stdout.close()
        talker.stdin.write(b"go on\n")
        talker.stdin.close()
        assert (talker.wait(60), talker.stderr.read()) == (0, b"")


@pytest.mark.parametrize(("text", "told"), [("No room\nfor an array", "No room"), ("", "MemoryError")])
def test_a_shortage_of_memory_is_one_line(capsys, text, told):
    def work():
        raise MemoryError(text)

    assert run_command(work) == 1
    assert capsys.readouterr().err == f"error: out of memory: {told}\n"


def test_another_runtime_error_is_a_defect_of_ours():
    def work():
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        run_command(work)
