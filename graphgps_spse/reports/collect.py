"""The runs below a folder: those with a result, those without, and what is there but cannot be read."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from graphgps_spse.errors import DataError
from graphgps_spse.results import RunResult, compare_with_history
from graphgps_spse.sweeps.launch import JOURNAL, LOG, describe_end, read_attempts
from graphgps_spse.sweeps.sweep import MANIFEST, read_manifest

MARKS_OF_A_RUN = ("config.yaml", "env.json", "run.lock", "result.json", JOURNAL)


class RecordedRun(NamedTuple):
    """A finished run and where it lies."""

    result: RunResult
    path: Path


@dataclass
class Collection:
    """Everything found below a folder of results, by the folder of a configuration, which holds one for each seed."""

    root: Path
    finished: dict[Path, list[RecordedRun]] = field(default_factory=dict)
    unfinished: dict[Path, dict[int, str]] = field(default_factory=dict)
    """Folder -> seed -> how far it came."""
    planned: dict[Path, set[int]] = field(default_factory=dict)
    """Folder -> the seeds that sweeps list."""
    problems: list[str] = field(default_factory=list)
    """Records that are there and were not read, and why."""
    notes: list[str] = field(default_factory=list)
    """What could not be verified of records that were read."""

    def label(self, folder: Path) -> str:
        """Return a configuration's folder as a report shows it; bytes of its name that are no text are escaped."""
        label = folder.relative_to(self.root).as_posix() if folder != self.root else folder.name
        return os.fsencode(label).decode(errors="backslashreplace")


def collect_runs(root: Path) -> Collection:
    """Read every result below `root`: NAME/SEED/result.json, at any depth.

    Half-written, foreign and contradictory records become problems, and runs without a record are unfinished. Raises
    DataError where there is no such folder, or neither a run nor a plan of one in it.
    """
    try:
        if not root.is_dir():
            raise DataError(f"{root} is no folder; name the one that holds NAME/SEED/result.json")
        root = root.resolve()
    except OSError as err:
        raise DataError(f"{root}: cannot be read ({err.strerror}); name a folder of NAME/SEED/result.json") from err
    if root.name.isdecimal() and _holds_run(root):
        raise DataError(f"{root} is one run; name the folder above {root.parent.name}")
    found = Collection(root)
    manifests = []
    for folder, names in _walk(root, found.problems):
        if MANIFEST in names:
            manifests.append(folder / MANIFEST)
        if folder.name.isdecimal() and any(name in names for name in MARKS_OF_A_RUN):
            try:
                _take_run(found, folder)
            except OSError as err:
                found.problems.append(f"{folder} cannot be read ({err.strerror}), so its run is unknown")
        elif "result.json" in names:
            found.problems.append(f"{folder / 'result.json'} lies in no NAME/SEED folder, so it was not read")
    for path in manifests:
        _take_plan(found, path)
    if not (found.finished or found.unfinished or found.problems):
        raise DataError(f"no NAME/SEED/result.json below {root}; name the folder that the runs were written to")
    return found


def _walk(root: Path, problems: list[str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders and the names in them, in a fixed order; what lies inside a run is not looked at.

    Links are followed, each folder is read once, and those that cannot be read become problems.
    """

    def note(err: OSError) -> None:
        problems.append(f"{err.filename} cannot be read ({err.strerror}), so the runs in it are unknown")

    seen = set[str]()
    for folder, below, names in os.walk(root, onerror=note, followlinks=True):
        place = os.path.realpath(folder)
        if place in seen:
            below[:] = []
            continue
        seen.add(place)
        is_run = Path(folder).name.isdecimal() and any(name in names for name in MARKS_OF_A_RUN)
        below[:] = [] if is_run else sorted(below, key=lambda name: (os.path.islink(Path(folder, name)), name))
        yield Path(folder), names


def _holds_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in MARKS_OF_A_RUN)


def _take_run(found: Collection, folder: Path) -> None:
    seed, path = int(folder.name), folder / "result.json"
    if folder.name != str(seed):
        found.problems.append(f"{folder} is no seed's folder, which would be called {seed}, so it was not read")
        return
    if not path.is_file():
        found.unfinished.setdefault(folder.parent, {})[seed] = _how_far(folder)
        return
    try:
        result = RunResult.read(path)
        if (result.name, result.seed) != (folder.parent.name, seed):
            raise DataError(f"{path} is the record of {result.name}/{result.seed}; a run's folder keeps its name")
        if not math.isfinite(result.score):
            raise DataError(f"{path}: its test {result.metric} is {result.score}, so the run counts as failed")
        found.notes += compare_with_history(result, folder)
    except DataError as err:
        found.problems.append(str(err))
        found.unfinished.setdefault(folder.parent, {})[seed] = "its record was not read"
    else:
        found.finished.setdefault(folder.parent, []).append(RecordedRun(result, folder))


def _how_far(folder: Path) -> str:
    """Return how far a run without a result came, as its files say."""
    stats = folder / "train" / "stats.json"
    num_epochs = len(stats.read_bytes().splitlines()) if stats.is_file() else 0
    begun = f"after {num_epochs} epochs" if any(folder.glob("checkpoint*.pt")) else "before any checkpoint"
    last = (read_attempts(folder) or [{}])[-1]
    exit_code = last.get("exit_code") if last.get("event") == "ended" else None
    reason = last.get("reason") or (describe_end(exit_code, folder / LOG) if isinstance(exit_code, int) else "")
    return f"no result, {begun}" + (f"; the last attempt: {reason}" if reason else "")


def _take_plan(found: Collection, path: Path) -> None:
    """Add the runs that a sweep has planned and nobody has begun."""
    try:
        planned = [path.parent / run["dir"] for run in read_manifest(path)]
        seeds = [int(run.name) for run in planned]
    except (DataError, ValueError) as err:
        found.problems.append(f"{err}; which of its runs were not begun is unknown")
        return
    for run, seed in zip(planned, seeds):
        folder = Path(os.path.normpath(run.parent))
        there = {run.result.seed for run in found.finished.get(folder, [])} | set(found.unfinished.get(folder, {}))
        if folder.is_relative_to(found.root):
            found.planned.setdefault(folder, set()).add(seed)
            if seed not in there:
                found.unfinished.setdefault(folder, {})[seed] = "not begun"
