"""Many runs on one machine: some processes side by side, with its cores and GPUs divided among them."""

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from graphgps_spse.errors import LaunchError, is_full_disk
from graphgps_spse.sweeps.launch import Attempt, Ended, LaunchTask

log = logging.getLogger(__name__)

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Slot:
    """What one of the processes gets."""

    num_threads: int
    gpu: str = ""
    """As CUDA_VISIBLE_DEVICES names it; empty: the variable stays as it is."""

    def environment(self) -> dict[str, str]:
        """Return the variables that keep a process within its slot."""
        threads = {name: os.environ.get(name, str(self.num_threads)) for name in THREADS}
        return {**threads, **({"CUDA_VISIBLE_DEVICES": self.gpu} if self.gpu else {})}


@dataclass
class Tally:
    """How the tasks of one pool ended, by name."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    """Stopped or killed from outside, or by a full disk; the same command goes on."""
    elsewhere: list[str] = field(default_factory=list)
    """Found in the hands of another process."""


def divide(num_jobs: int, num_cores: int, gpus: Sequence[str]) -> list[Slot]:
    """Return one slot for each of `num_jobs`: an equal share of the cores, and the GPUs in turn."""
    share = max(1, num_cores // num_jobs)
    return [Slot(share, gpus[number % len(gpus)] if gpus else "") for number in range(num_jobs)]


def find_gpus() -> list[str]:
    """Return the GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, or all that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [word.strip() for word in visible.split(",") if word.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as err:
        log.warning("nvidia-smi gives no answer (%s); no GPU is divided among the runs", err)
        return []
    return [str(number) for number, line in enumerate(line for line in listing.splitlines() if line.startswith("GPU"))]


def run_tasks(
    tasks: Sequence[LaunchTask],
    slots: Sequence[Slot],
    *,
    should_stop: Callable[[], bool],
    start: Callable[[LaunchTask, dict[str, str]], Attempt | None] = Attempt.start,
    poll_seconds: float = 0.05,
) -> Tally:
    """Run every task in a process of its own, at most one in each slot at a time, and note how each ended.

    `start` returns None where another process is at a task or has done it. A task that fails or dies leaves the others
    alone. When `should_stop()` turns true no more are started, those
    running are sent SIGTERM, which makes main.py save and stop, and are waited for; a KeyboardInterrupt kills them.
    """
    waiting, tally = list(tasks), Tally()
    busy: dict[int, Attempt] = {}
    asked = False
    try:
        while busy or (waiting and not asked):
            if should_stop() and not asked:
                asked = True
                for attempt in busy.values():
                    attempt.signal(signal.SIGTERM)
            for number, slot in enumerate(slots):
                if number in busy:
                    ended = busy[number].poll()
                    if ended is None:
                        continue
                    _note(tally, busy.pop(number).task, ended)
                if waiting and not asked:
                    task = waiting.pop(0)
                    place = f"{len(tasks) - len(waiting)} of {len(tasks)}"
                    started = _start(task, place, slot, start, tally)
                    if started is not None:
                        busy[number] = started
            time.sleep(poll_seconds)
    except KeyboardInterrupt:
        for attempt in busy.values():
            attempt.signal(signal.SIGKILL)
        for attempt in busy.values():
            attempt.process.wait()
            attempt.poll()
        raise
    tally.stopped += [task.name for task in waiting]
    return tally


def _start(
    task: LaunchTask, place: str, slot: Slot, start: Callable[..., Attempt | None], tally: Tally
) -> Attempt | None:
    try:
        attempt = start(task, slot.environment())
    except LaunchError as err:
        log.error("%s: %s", task.name, err)
        (tally.stopped if is_full_disk(err) else tally.failed).append(task.name)
        return None
    if attempt is None:
        log.info("%s: another process is at it or has done it", task.name)
        tally.elsewhere.append(task.name)
    else:
        log.info("%s: started, %s%s", task.name, place, f", on GPU {slot.gpu}" if slot.gpu else "")
    return attempt


def _note(tally: Tally, task: LaunchTask, ended: Ended) -> None:
    if ended.exit_code == 0:
        tally.done.append(task.name)
        log.info("%s: done in %.1f s", task.name, ended.seconds)
    elif ended.is_failure:
        tally.failed.append(task.name)
        log.error("%s: failed after %.1f s, %s; its log: %s", task.name, ended.seconds, ended.reason, task.folder)
    else:
        tally.stopped.append(task.name)
        why = ended.reason or "stopped"
        log.info("%s: %s after %.1f s; the same command goes on", task.name, why, ended.seconds)
