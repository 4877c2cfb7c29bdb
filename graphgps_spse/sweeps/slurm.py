"""Tasks as SLURM job arrays, through submitit or as a plain script, requeued when SLURM wants their place.

SLURM is told to send SIGUSR2 some time before the limit and, where the cluster allows it, before a preemption. main.py
then saves and returns 75, and the job asks to be queued again. What is done is never read from SLURM or submitit.
"""

import logging
import math
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

from graphgps_spse.errors import RESUMABLE, ConfigError, LaunchError
from graphgps_spse.registry import nearest
from graphgps_spse.sweeps.launch import Attempt, Ended, LaunchTask, note_submitted, shown, this_job

log = logging.getLogger(__name__)

MAX_ARRAY = 1000
"""Tasks of one array; SLURM's own limit, MaxArraySize, is 1001 unless an administrator raised it."""


@dataclass(frozen=True)
class SlurmOptions:
    """What `--slurm key=value ...` asks for, for each task."""

    partition: str = ""
    gpus: int = 0
    cpus: int = 4
    mem_gb: float = 0.0
    """0: the partition's default."""
    hours: float = 24.0
    """Time limit of one start; a longer run is requeued and goes on."""
    array: int = 32
    """Tasks at the same time."""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    signal_seconds: int = 120
    """Time before the limit at which SIGUSR2 comes, to save in."""
    requeues: int = 100
    """How often one task goes back into the queue before a person is asked to look."""
    setup: str = ""
    """A shell command to begin with, e.g. setup="module load cuda"."""

    @classmethod
    def parse(cls, words: Sequence[str]) -> "SlurmOptions":
        """Read key=value words. Raises ConfigError naming the word and the nearest key."""
        kinds: dict[str, Any] = {f.name: type(f.default) for f in fields(cls)}
        values: dict[str, Any] = {}
        for word in words:
            key, equals, text = word.partition("=")
            if not equals or key not in kinds:
                raise ConfigError(
                    f"--slurm {word}: expected key=value.{nearest(key, list(kinds))} Keys: {', '.join(kinds)}"
                )
            try:
                values[key] = kinds[key](text)
            except ValueError as err:
                raise ConfigError(f"--slurm {word}: {key} is a {kinds[key].__name__}, e.g. {key}=1") from err
        options = cls(**values)
        for key in ("hours", "mem_gb"):
            if not math.isfinite(getattr(options, key)):
                raise ConfigError(f"--slurm {key}={getattr(options, key)} is no number to count with")
        for key in ("cpus", "hours", "array", "signal_seconds"):
            if getattr(options, key) <= 0:
                raise ConfigError(f"--slurm {key}={getattr(options, key)} must be above 0")
        for key in ("gpus", "mem_gb", "requeues"):
            if getattr(options, key) < 0:
                raise ConfigError(f"--slurm {key}={getattr(options, key)} is below 0")
        if options.signal_seconds >= 60 * options.minutes:
            raise ConfigError(
                f"--slurm hours={options.hours} leaves no time to train in: SLURM asks to save signal_seconds="
                f"{options.signal_seconds} before its end; raise hours, or lower signal_seconds"
            )
        return options

    @property
    def minutes(self) -> int:
        """The time limit in whole minutes, as SLURM counts it."""
        return max(1, round(self.hours * 60))


def submit(tasks: Sequence[LaunchTask], options: SlurmOptions, name: str, folder: Path) -> list[str]:
    """Submit tasks as arrays; return the id of each one's job. `folder` keeps what submitit writes.

    Raises LaunchError where there is no SLURM, no submitit, or SLURM refuses.
    """
    if shutil.which("sbatch") is None or shutil.which("srun") is None:
        raise LaunchError(
            "no SLURM on this machine: sbatch is not on the PATH. Run this on the cluster's login node, print a script "
            "to take there with --dry-run, or run on this machine with --jobs N"
        )
    try:
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError
    except ImportError as err:
        raise LaunchError(
            f"submitit cannot be imported ({err}): pip install 'graphgps_spse[slurm]', or print a script with --dry-run"
        ) from err
    jobs: list[str] = []
    for begin in range(0, len(tasks), MAX_ARRAY):
        part = tasks[begin : begin + MAX_ARRAY]
        try:
            executor = SlurmExecutor(folder=folder, max_num_timeout=options.requeues)
            executor.update_parameters(**_submitit_parameters(options, name))
            submitted = executor.submit_array([QueuedTask(task, options.requeues) for task in part])
        except (OSError, FailedJobError, FailedSubmissionError) as err:
            raise LaunchError(f"SLURM does not take the jobs: {err}") from err
        for task, job in zip(part, submitted, strict=True):
            note_submitted(task.folder, job.job_id)
            jobs.append(job.job_id)
    return jobs


def _submitit_parameters(options: SlurmOptions, name: str) -> dict[str, Any]:
    given = {
        "job_name": name,
        "partition": options.partition,
        "time": options.minutes,
        "cpus_per_task": options.cpus,
        "gpus_per_node": options.gpus,
        "mem": f"{round(options.mem_gb * 1024)}MB" if options.mem_gb else "",
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "array_parallelism": options.array,
        "signal_delay_s": options.signal_seconds,
        "srun_args": [f"--cpus-per-task={options.cpus}"],  # from 22.05 on srun does not take it over from sbatch
        "stderr_to_stdout": True,
        "setup": [options.setup, f"cd {shlex.quote(os.getcwd())}"] if options.setup else [],
        "additional_parameters": {"requeue": True},
    }
    return {key: value for key, value in given.items() if value}


@dataclass(frozen=True)
class QueuedTask:
    """What submitit keeps and calls on the node: one attempt, and a place in the queue when it had to stop."""

    task: LaunchTask
    requeues: int

    def __call__(self) -> int:
        """Do the task; return its exit code, 0 too where it is done already.

        Raises LaunchError when it failed or another process is at it, so that SLURM shows the job as failed.
        """
        heard: list[int] = []
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # in place of submitit's handlers
            signal.signal(number, lambda received, frame: heard.append(received))
        release_lock_of_dead_job(self.task.folder)
        result = self.task.folder / "result.json"
        # In its own group SLURM might not find the process when it ends the job.
        attempt = Attempt.start(self.task, own_group=False, is_wanted=lambda: not result.is_file())
        if attempt is None:
            if result.is_file():
                return 0
            raise LaunchError(f"{self.task.name}: another process is at it; see {self.task.folder}")
        ended = wait(attempt, heard)
        if ended.is_failure or not heard:
            if ended.exit_code:
                raise LaunchError(f"{self.task.name}: {ended.reason or 'stopped from outside'}; see {self.task.folder}")
        elif ended.exit_code:
            requeue(self.requeues, wanted=any(number != signal.SIGTERM for number in heard))
        return ended.exit_code

    def checkpoint(self) -> Any:
        """Tell submitit to queue the same again: only for a signal that comes before the handlers above."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def wait(attempt: Attempt, heard: Sequence[int], poll_seconds: float = 0.1) -> Ended:
    """Wait for an attempt to end; pass on the first signal of `heard`, a list that a handler fills."""
    told = False
    while True:
        ended = attempt.poll()
        if ended is not None:
            return ended
        if heard and not told:
            told = True
            attempt.signal(signal.SIGTERM)
        time.sleep(poll_seconds)


def requeue(max_requeues: int, wanted: bool) -> NoReturn:
    """Put this job back into the queue, and end.

    SLURM sends SIGUSR2 when it wants the place. With `wanted` false only SIGTERM came: of a preemption, in which the
    job counts as running, or of scancel, after which it does not and stays away.
    """
    job, restarts = this_job(), int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if restarts >= max_requeues:
        raise LaunchError(f"job {job} went back into the queue {restarts} times; start the sweep again to go on")
    if wanted or _ask(["squeue", "--noheader", "--jobs", job, "--format=%T"])[1].strip() == "RUNNING":
        for _ in range(20):  # the controller may be away for a while
            exit_code, answer = _ask(["scontrol", "requeue", job])
            if exit_code == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                time.sleep(60)  # SLURM ends this process; to end first would look as if the job were over
                break
            log.warning("scontrol requeue %s: %s", job, answer.strip())
            time.sleep(3)
    sys.exit(RESUMABLE)


def release_lock_of_dead_job(folder: Path) -> None:
    """Empty a run.lock that a job on another host left behind, once SLURM says that the job is over.

    On one host the kernel gives the lock back; across a network file system the text in it speaks, and outlives a node.
    """
    lock = folder / "run.lock"
    words = lock.read_text(errors="replace").split() if lock.is_file() else []
    if len(words) != 3 or words[0] == socket.gethostname() or words[2] in ("-", os.environ.get("SLURM_JOB_ID")):
        return
    exit_code, answer = _ask(["squeue", "--noheader", "--array", "--states=all", "--jobs", words[2], "--format=%A %T"])
    states = [line.split()[1] for line in answer.splitlines() if line.split()[0] == words[2]] if not exit_code else []
    over = "Invalid job id" in answer if exit_code else all(state in ENDED_STATES for state in states)
    if over:
        log.warning("%s: job %s on %s is over; its lock is released", folder, words[2], words[0])
        lock.write_text("")


ENDED_STATES = (
    "",
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "PREEMPTED",
)


def _ask(command: Sequence[str]) -> tuple[int, str]:
    """Return the exit code of a SLURM command and what it printed, errors included."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        return 1, str(err)
    return answer.returncode, answer.stdout + answer.stderr


def script(tasks: Sequence[LaunchTask], options: SlurmOptions, name: str) -> str:
    """Return a plain sbatch script for up to MAX_ARRAY tasks: no submitit, to be read and edited."""
    if len(tasks) > MAX_ARRAY:
        raise LaunchError(f"{len(tasks)} tasks are more than one array takes ({MAX_ARRAY}); divide the sweep's file")
    asked = {
        "job-name": name,
        "array": f"0-{len(tasks) - 1}%{options.array}",
        "partition": options.partition,
        "time": options.minutes,
        "cpus-per-task": options.cpus,
        "gpus-per-node": options.gpus,
        "mem": f"{round(options.mem_gb * 1024)}M" if options.mem_gb else "",
        "account": options.account,
        "qos": options.qos,
        "constraint": options.constraint,
        "signal": f"USR2@{options.signal_seconds}",
        "output": f"{name}-%A_%a.txt",
        "open-mode": "append",
    }
    flags = [f"#SBATCH --{key}={shlex.quote(str(value))}" for key, value in asked.items() if value]
    cases = [f"{number}) run {shown([str(task.folder)])} {shown(task.command)} ;;" for number, task in enumerate(tasks)]
    return "\n".join(
        ["#!/bin/bash", *flags, "#SBATCH --requeue", options.setup, f"cd {shlex.quote(os.getcwd())} || exit 2", ""]
        + [_RUN.format(cpus=options.cpus, requeues=options.requeues), "case $SLURM_ARRAY_TASK_ID in", *cases, "esac"]
    )


_RUN = """\
run() {{  # the folder of a run, then its command
    folder=$1
    job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID  # not SLURM_JOB_ID: one task has the number of the whole array
    shift
    [ -e "$folder/result.json" ] && exit 0
    mkdir -p "$folder" || exit 2
    echo "--- started $(date --iso-8601=seconds) on $(hostname): $*" >> "$folder/log.txt"
    # Through srun, since SLURM signals the steps of a job and not this script. main.py then saves and returns 75.
    srun --cpus-per-task={cpus} "$@" >> "$folder/log.txt" 2>&1
    code=$?
    printf '{{"event": "ended", "exit_code": %d}}\\n' "$code" >> "$folder/attempts.jsonl"
    # Preempted or near its limit: back into the queue, to go on from there. After scancel it is no longer RUNNING.
    if [ "$code" -eq 75 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ] &&
        [ "$(squeue --noheader --jobs "$job" --format=%T)" = RUNNING ]; then
        scontrol requeue "$job" && sleep 60
    fi
    exit "$code"
}}
"""
