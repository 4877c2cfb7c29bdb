"""How far each run of a sweep is, read from the run directories alone, and the plan that says so."""

import json
import logging
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphgps_spse.config.identity import differing_keys, experiment_of
from graphgps_spse.errors import DataError, LaunchError, RunDirError
from graphgps_spse.results import RunResult
from graphgps_spse.rundir import load_saved_config
from graphgps_spse.sweeps.launch import LOG, describe_end, is_failure, is_held, read_attempts, shown
from graphgps_spse.sweeps.sweep import PlannedRun

log = logging.getLogger(__name__)

KINDS = ("done", "running", "queued", "interrupted", "failed", "differs", "missing")


@dataclass(frozen=True)
class State:
    """One of KINDS, and what there is to say about it."""

    kind: str
    detail: str = ""
    epochs: int = 0
    """Epochs that its records hold."""
    seconds_per_epoch: float | None = None
    """Mean over those epochs, evaluation included; None where there is none that says."""
    result: RunResult | None = None

    def needs_running(self, retry_failed: bool) -> bool:
        """Whether a sweep that is started now does this run."""
        return self.kind in ("missing", "interrupted") or (self.kind == "failed" and retry_failed)


def read_state(run: PlannedRun, live_jobs: set[str] | None = None) -> State:
    """Return the state of a run. `live_jobs` are the jobs that SLURM knows, None where it cannot be asked.

    Finished runs and those with a checkpoint are compared with the configuration that the sweep would give them:
    with another one they are not this run, and differ. Raises LaunchError where the run directory cannot be read.
    """
    with _reading(run):
        return _read_state(run, live_jobs)


@contextmanager
def _reading(run: PlannedRun) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        reason = f"cannot be read ({err.strerror}); choose another out_dir"
        raise LaunchError(f"{run.where}: {run.run_dir}: {reason}") from err


def _read_state(run: PlannedRun, live_jobs: set[str] | None) -> State:
    folder = run.run_dir
    progress = _read_progress(folder / "train" / "stats.json", run.cfg.optim.max_epoch)
    epochs = progress["epochs"]
    if (folder / "result.json").is_file():
        return _read_finished(run, epochs)
    attempts = read_attempts(folder)
    holder = _find_holder(folder, attempts, live_jobs)
    if holder:
        return State("running", holder, **progress)
    has_checkpoint = any(folder.glob("checkpoint*.pt"))
    if has_checkpoint:
        difference = _compare_saved(run)
        if difference:
            return State("differs", difference, epochs)
    jobs = [event["job"] for event in attempts if event.get("job", "-") != "-"]
    if jobs and live_jobs and jobs[-1] in live_jobs:
        return State("queued", f"SLURM job {jobs[-1]}", **progress)
    last = attempts[-1] if attempts else {}
    exit_code = last.get("exit_code") if last.get("event") == "ended" else None
    reason = ""
    if isinstance(exit_code, int):
        reason = str(last.get("reason") or describe_end(exit_code, folder / LOG))
        if is_failure(exit_code):
            return State("failed", reason, **progress)
    if has_checkpoint:
        done = f"after {epochs} of {run.cfg.optim.max_epoch} epochs"
        return State("interrupted", f"{done}, {reason}" if reason else done, **progress)
    return State("missing", reason)


def _read_finished(run: PlannedRun, epochs: int) -> State:
    try:
        result = RunResult.read(run.run_dir / "result.json")
    except DataError as err:
        return State("failed", str(err), epochs)
    wanted = json.loads(json.dumps(experiment_of(run.resolved())))  # as the record holds it
    keys = sorted(key for key in {*wanted, *result.config} if wanted.get(key) != result.config.get(key))
    if keys and result.config:
        return State("differs", _describe((key, result.config.get(key), wanted.get(key)) for key in keys), epochs)
    return State("done", "", result.epochs, result.seconds_per_epoch, result)


def _compare_saved(run: PlannedRun) -> str:
    try:
        return _describe(differing_keys(load_saved_config(run.run_dir / "config.yaml"), run.resolved()))
    except RunDirError as err:
        return str(err)


def _describe(differing: Iterable[tuple[str, Any, Any]]) -> str:
    rows = ", ".join(f"{key} {old!r} there, {new!r} here" for key, old, new in differing)
    return f"holds a run of another configuration: {rows}" if rows else ""


def _find_holder(folder: Path, attempts: Sequence[dict[str, Any]], live_jobs: set[str] | None) -> str:
    """Return who works on a run, or "". A process of another host counts as alive unless SLURM says otherwise."""
    candidates: list[tuple[Any, ...]] = []
    if attempts and attempts[-1]["event"] == "started":
        started = attempts[-1]
        candidates.append((folder / "attempts.jsonl", started.get("host"), started.get("process"), started.get("job")))
    words = _read_lock(folder)
    if words:
        candidates.append((folder / "run.lock", *words))
    for path, host, process, job in candidates:
        if not str(process).isdecimal():
            continue
        held = is_held(path, str(host), int(str(process)))
        if held is None:
            held = job in live_jobs if job != "-" and live_jobs is not None else True
        if held:
            return f"process {process} on {host}" + (f", SLURM job {job}" if job != "-" else "")
    return ""


def _read_lock(folder: Path) -> list[str]:
    """Return host, process and SLURM job of run.lock; nothing where it is empty or foreign."""
    lock = folder / "run.lock"
    words = lock.read_text(errors="replace").split() if lock.is_file() else []
    return words if len(words) == 3 else []


def _read_progress(path: Path, max_epoch: int) -> dict[str, Any]:
    """Return epochs and seconds_per_epoch of a run's training statistics, from whole lines alone."""
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except OSError:
        lines = []
    found: dict[str, Any] = {"epochs": len(lines)}
    remaining = max_epoch - len(lines)
    if lines and remaining > 0:
        try:
            found["seconds_per_epoch"] = float(json.loads(lines[-1])["eta"]) / remaining
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as err:
            log.debug("%s: its last line does not say how long is left: %r", path, err)
    return found


def knows_slurm(run: PlannedRun) -> bool:
    """Return whether a SLURM job was ever given this run, so that it pays to ask SLURM. Raises as read_state does."""
    with _reading(run):
        jobs = [event.get("job", "-") for event in read_attempts(run.run_dir)] + _read_lock(run.run_dir)[2:]
    return any(job != "-" for job in jobs)


def ask_live_jobs() -> set[str] | None:
    """Return the ids of this user's SLURM jobs, pending and running, as 12_3 and as 15; None where none answers."""
    if shutil.which("squeue") is None:
        return None
    command = ["squeue", "--me", "--noheader", "--array", "--format=%i %A"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as err:
        log.warning("squeue gives no answer (%s); runs that wait in its queue are not known", err)
        return None
    if answer.returncode:
        log.warning("squeue gives no answer (%s); runs that wait in its queue are not known", answer.stderr.strip())
        return None
    return set(answer.stdout.split())


def predict_hours(run: PlannedRun, state: State, same_config: Sequence[State]) -> float | None:
    """Return hours still to go, from epochs of all runs of the same configuration; for a finished run what it took.

    None where no run of it has finished an epoch: nothing is guessed from other configurations.
    """
    if state.result:
        return state.result.seconds / 3600
    timed = [(other.epochs, other.seconds_per_epoch) for other in same_config if other.seconds_per_epoch is not None]
    if not timed:
        return None
    seconds = sum(epochs * mean for epochs, mean in timed) / sum(epochs for epochs, _ in timed)
    return max(0, run.cfg.optim.max_epoch - state.epochs) * seconds / 3600


def plan(runs: Sequence[PlannedRun], states: Sequence[State], num_threads: int = 0) -> list[str]:
    """Return the lines of a plan: each run with state, hours and command, then how many there are of each state."""
    same_config: dict[Path, list[State]] = {}
    for run, state in zip(runs, states, strict=True):
        same_config.setdefault(run.run_dir.parent, []).append(state)
    lines = [f"{'state':12s}{'hours':>8s}  command"]
    known, unknown = 0.0, 0
    for run, state in zip(runs, states, strict=True):
        hours = predict_hours(run, state, same_config[run.run_dir.parent])
        if state.kind not in ("done", "differs"):
            known, unknown = known + (hours or 0.0), unknown + (hours is None)
        told = "unknown" if hours is None else f"{hours:.2f}"
        lines.append(f"{state.kind:12s}{told:>8s}  {shown(run.task(num_threads).command)}")
        if state.detail:
            lines.append(f"{'':22s}{run.relative_dir}: {state.detail}")
    counts = Counter(state.kind for state in states)
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind])
    lines.append(f"{len(runs)} runs: {parts}")
    guess = f"{known:.2f} h, one run at a time, as fast as the epochs of each configuration so far"
    blank = f"unknown for {unknown} runs, of whose configurations no epoch is finished"
    lines.append("still to go: " + "; ".join([guess] * (known > 0 or not unknown) + [blank] * (unknown > 0)))
    return lines
