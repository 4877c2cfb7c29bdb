"""The one record of a finished run, and the collection of many."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from graphgps_spse.errors import DataError
from graphgps_spse.files import write_atomic, write_json

SCHEMA = 1


@dataclass(frozen=True)
class RunResult:
    """What result.json holds: enough to print a table, and to say where each number comes from."""

    name: str
    dataset: str
    model: str
    encoding: str
    seed: int
    metric: str
    """The metric that picked the best epoch, on validation."""
    direction: str
    """"min" or "max"."""
    best_epoch: int
    """Counted from 0."""
    best: dict[str, dict[str, float]]
    """Every metric of train, val and test at the best epoch. Train's are running means with dropout on."""
    epochs: int
    seconds: float
    """Wall time of all sessions of the run, evaluation included."""
    seconds_per_epoch: float
    num_params: int
    config_hash: str
    """SHA-256 of the resolved configuration without the keys that only say how it is run, and without the seed."""
    fingerprints: dict[str, str]
    """SHA-256 of each split."""
    encodings: dict[str, Any]
    """For each encoding, how it was computed and whether it is exact."""
    expected: dict[str, Any]
    environment: dict[str, Any]
    """Versions, commit, device of the last session."""
    schema: int = SCHEMA

    @property
    def score(self) -> float:
        """The metric on test at the best validation epoch."""
        return self.best["test"][self.metric]

    def write(self, path: Path) -> None:
        """Write result.json, whole or not at all."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """Read result.json. Raises DataError where it is damaged or of another schema."""
        try:
            record = json.loads(path.read_text())
            known = {f.name for f in fields(cls)}
            if record.get("schema") != SCHEMA:
                raise DataError(f"{path}: schema {record.get('schema')!r}, this version reads {SCHEMA}")
            return cls(**{key: value for key, value in record.items() if key in known})
        except (OSError, ValueError, AttributeError, TypeError) as err:
            raise DataError(f"{path} cannot be read as a result: {err}") from err


def find_results(folder: Path) -> list[RunResult]:
    """Read every result.json of `folder`/<name>/<seed>/, sorted by name and seed. Raises DataError for a stray one."""
    results = []
    for path in folder.glob("*/*/result.json"):
        results.append(RunResult.read(path))
        belongs = f"{results[-1].name}/{results[-1].seed}"
        if belongs != f"{path.parts[-3]}/{path.parts[-2]}":
            raise DataError(f"{path} is the record of {belongs}; a run's folder keeps its name")
    return sorted(results, key=lambda r: (r.name, r.seed))


def read_history(run_dir: Path, split: str) -> list[dict[str, Any]]:
    """Read a split's stats.json: one record for each evaluated epoch."""
    path = run_dir / split / "stats.json"
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as err:
        raise DataError(f"{path} cannot be read: {err}") from err


def check_one_cell(results: Sequence[RunResult]) -> None:
    """Raise DataError unless `results` are seeds of one configuration on the same data."""
    for what in ("config_hash", "fingerprints", "metric"):
        if any(getattr(result, what) != getattr(results[0], what) for result in results):
            seeds = ", ".join(str(result.seed) for result in results)
            raise DataError(
                f"'{results[0].name}' mixes runs that differ in {what} (seeds {seeds}); give each its own name"
            )


def aggregate(name_dir: Path) -> None:
    """Write agg/{train,val,test}/best.json over the finished seeds of one configuration, as GraphGym lays them out.

    Each seed counts at its own best epoch; `<metric>_std` is the sample deviation (ddof 1, 0.0 for one seed). Derived
    from result.json alone, so it may run at any time, twice, or in several processes. Raises DataError where the seeds
    are not of one configuration, or a record is damaged.
    """
    results = [RunResult.read(path) for path in sorted(name_dir.glob("*/result.json"))]
    if not results:
        return
    check_one_cell(results)
    for split in ("train", "val", "test"):
        record: dict[str, Any] = {"seeds": [r.seed for r in results]}
        for metric in results[0].best[split]:
            values = [r.best[split][metric] for r in results]
            record[metric] = statistics.fmean(values)
            record[f"{metric}_std"] = statistics.stdev(values) if len(values) > 1 else 0.0
        folder = name_dir / "agg" / split
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "best.json", (json.dumps(record) + "\n").encode())
