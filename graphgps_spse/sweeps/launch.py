"""One attempt at one run: a process of its own, its log, and a line in attempts.jsonl when it starts and ends.

`attempts.jsonl` lies in the run's directory beside `log.txt` and only grows. Its lines are
{"event": "submitted", "job": "12_3"}, {"event": "started", "host", "process", "job", "command"} and
{"event": "ended", "exit_code", "reason", "seconds"}, each with "time". While an attempt lasts, the file is locked.
"""

import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from graphgps_spse.errors import RESUMABLE, LaunchError
from graphgps_spse.files import try_lock

log = logging.getLogger(__name__)

JOURNAL, LOG = "attempts.jsonl", "log.txt"
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
"""Signals that end a process through no fault of the run: a scheduler's, a person's, the kernel's without memory."""


_LIKELY_CAUSES = {
    "SIGKILL": " (by hand, or memory ran out)",
    "SIGBUS": " (a file that was in use was cut short, or /dev/shm is full)",
}


@dataclass(frozen=True)
class LaunchTask:
    """A command and the folder that keeps its log and journal."""

    name: str
    """How it is called in messages, e.g. GRIT/zinc-SPSE/3."""
    folder: Path
    command: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """How an attempt ended; `reason` is empty where nothing went wrong."""

    exit_code: int
    reason: str
    seconds: float

    @property
    def is_failure(self) -> bool:
        """Whether the run itself is to blame, so that the same command would probably fail again."""
        return is_failure(self.exit_code)


class Attempt:
    """A started process. It holds the journal's lock, and the process inherits it, until both are gone."""

    def __init__(self, task: LaunchTask, process: "subprocess.Popen[bytes]", journal: TextIO) -> None:
        self.task = task
        self.process = process
        self._journal = journal
        self._began = time.monotonic()

    @classmethod
    def start(
        cls,
        task: LaunchTask,
        environment: Mapping[str, str] | None = None,
        *,
        own_group: bool = True,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> "Attempt | None":
        """Start the task, or return None where another process is at it or `is_wanted()`, asked under the lock, is not.

        `environment` is added to this process's own. With `own_group`, Ctrl-C in the terminal does not reach it.
        Raises LaunchError where the folder cannot be written or the command does not exist.
        """
        try:
            task.folder.mkdir(parents=True, exist_ok=True)
            journal = (task.folder / JOURNAL).open("a+", errors="replace")
        except OSError as err:
            raise LaunchError(f"{task.folder}: cannot be written ({err.strerror}); choose another out_dir") from err
        if try_lock(journal) is False or not is_wanted():
            journal.close()
            return None
        try:
            with (task.folder / LOG).open("a") as output:
                output.write(f"{_START_MARK}{_now()} on {socket.gethostname()}: {shlex.join(task.command)}\n")
                output.flush()
                process = subprocess.Popen(
                    task.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=own_group,
                    pass_fds=(journal.fileno(),),
                )
        except OSError as err:
            journal.close()
            raise LaunchError(f"{task.name} cannot be started in {task.folder}: {err}") from err
        started = {"host": socket.gethostname(), "process": process.pid, "job": this_job() or "-"}
        _append(journal, "started", {**started, "command": list(task.command)})
        return cls(task, process, journal)

    def poll(self) -> Ended | None:
        """Return how it ended, noted in the journal, or None while it runs. To be asked once more at most."""
        exit_code = self.process.poll()
        if exit_code is None:
            return None
        reason = describe_end(exit_code, self.task.folder / LOG)
        ended = Ended(exit_code, reason, time.monotonic() - self._began)
        _append(self._journal, "ended", {"exit_code": exit_code, "reason": reason, "seconds": round(ended.seconds, 3)})
        self._journal.close()
        return ended

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process: SIGTERM asks main.py to save and stop."""
        self.process.send_signal(number)


def main_command() -> tuple[str, ...]:
    """Return how main.py is started: the file beside the package, or the installed package's own copy."""
    main = Path(__file__).parents[2] / "main.py"
    return (sys.executable, str(main)) if main.is_file() else (sys.executable, "-m", "graphgps_spse")


def shown(command: Sequence[str]) -> str:
    """Return a command as a person would type it here: paths below the current folder are relative to it."""
    here = f"{Path.cwd()}/"
    return shlex.join(word.removeprefix(here).replace(f"={here}", "=") for word in command)


def this_job() -> str:
    """Return the SLURM job that this process belongs to, 12_3 for an array's task, or "".

    SLURM_JOB_ID would not do: one task of an array has the number of the whole array, which commands take for all.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def note_submitted(folder: Path, job: str) -> None:
    """Write into the journal of a run that a job of a scheduler will do it, or say that this cannot be noted."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / JOURNAL).open("a+") as journal:
            _append(journal, "submitted", {"job": job})
    except OSError as err:
        log.warning("%s: that SLURM job %s will do it cannot be noted (%s)", folder, job, err.strerror)


def read_attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the journal's events, oldest first. What a kill cut short or something else wrote is left out."""
    try:
        lines = (folder / JOURNAL).read_text(errors="replace").splitlines()
    except OSError:
        return []
    events = [_parse(line) for line in lines]
    return [event for event in events if event.get("event") in ("submitted", "started", "ended")]


def is_failure(exit_code: int) -> bool:
    """Whether an exit code is the run's own fault: no success, nothing to resume from, no signal from outside."""
    return exit_code not in (0, RESUMABLE) and signal_name(exit_code) not in FROM_OUTSIDE


def signal_name(exit_code: int) -> str:
    """Return the signal that an exit code stands for (-9, or 137 as shells have it), or ""."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in signal.valid_signals() and number > 0 else ""


def describe_end(exit_code: int, log_path: Path) -> str:
    """Return why a process ended with `exit_code`: the signal, or the last error of the last attempt in its log.

    Empty for a success, and for a run that was asked to stop; one that a full disk stopped has an error in its log.
    """
    if exit_code in (0, RESUMABLE):
        return "" if exit_code == 0 else last_error(log_path, otherwise="")
    name = signal_name(exit_code)
    if name:
        return f"killed by {name}{_LIKELY_CAUSES.get(name, '')}"
    return f"exit code {exit_code}: {last_error(log_path)}"


def last_error(log_path: Path, num_bytes: int = 16_384, otherwise: str | None = None) -> str:
    """Return the last line of a log that begins with "error:", or `otherwise`: by default its last line."""
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, log_path.stat().st_size - num_bytes))
            text = file.read().decode(errors="replace")
    except OSError as err:
        return f"its log cannot be read ({err.strerror})" if otherwise is None else otherwise
    lines = [line.strip() for line in text.rpartition(_START_MARK)[2].splitlines()[1:] if line.strip()]
    if otherwise is None:
        otherwise = lines[-1] if lines else "it printed nothing"
    return [otherwise, *(line.removeprefix("error:").strip() for line in lines if line.startswith("error:"))][-1]


def is_held(path: Path, host: str, process: int) -> bool | None:
    """Whether a process has a lock file open, or None if it is one of another host, which cannot be asked."""
    if host != socket.gethostname():
        return None
    about = Path(f"/proc/{process}")
    try:
        if not Path("/proc/self/fd").is_dir():  # not Linux
            os.kill(process, 0)
            return True
        if (about / "stat").read_text().rpartition(")")[2].split()[0] in "ZX":  # ended, and not yet waited for
            return False
        return any(os.path.realpath(file) == str(path.resolve()) for file in (about / "fd").iterdir())
    except PermissionError:  # alive and closed to us: who wrote the file, or a number that was used again
        return about.stat().st_uid == path.stat().st_uid
    except OSError:
        return False


_START_MARK = "--- started "


def _append(journal: TextIO, event: str, record: dict[str, Any]) -> None:
    """Add a line. A disk that refuses it is named in the log and ends nothing: the runs go on, noted or not."""
    line = json.dumps({"event": event, "time": _now(), **record}) + "\n"
    try:
        size = os.fstat(journal.fileno()).st_size
        is_cut = size and os.pread(journal.fileno(), 1, size - 1) != b"\n"  # a line that a kill cut short
        os.write(journal.fileno(), (("\n" if is_cut else "") + line).encode())  # no buffer that fails again in close()
    except OSError as err:
        log.warning("%s: '%s' cannot be noted (%s)", journal.name, event, err.strerror)


def _parse(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) and isinstance(event.get("job", ""), str) else {}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
