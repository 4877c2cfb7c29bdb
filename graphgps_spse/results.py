"""The one record of a finished run, and the collection of many."""

import hashlib
import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeGuard

from graphgps_spse.errors import DataError, show
from graphgps_spse.files import BEFORE_DIGESTS, read_record, write_atomic, write_record

SCHEMA = 2
LARGEST = 1e70
"""No number of a record is larger: float32 ends at 3.4e38, and the fourth powers that tests need still fit a float."""
HOW_NOT_WHAT = frozenset({"stored", "work", "place", "sampled_graphs", "num_graphs"})
"""Keys of an encoding's record that say how it was made; with other values of them it is the same encoding."""
OF_ALL_GRAPHS = frozenset({"status", "share_exact", "graphs_exact_at_every_length"})
"""Keys that cannot be compared where one run saw a sample of the graphs only, as it encodes them on the fly."""
KINDS: dict[Any, tuple[str, ...]] = {
    str: ("name", "dataset", "model", "encoding", "metric", "config_hash", "selection_metric"),
    list: ("extended_from",),
    dict: (
        "best",
        "fingerprints",
        "encodings",
        "expected",
        "environment",
        "config",
        "resources",
        "history_digests",
        "initial_weights",
    ),
}
WHOLE, NUMBERS = ("seed", "best_epoch", "epochs", "num_params"), ("seconds", "seconds_per_epoch")
"""What the fields of a record are, whoever wrote it."""
CURE = "; move it aside and start the run again: its last checkpoint holds the same numbers"


@dataclass(frozen=True)
class RunResult:
    """What result.json holds: enough to print a table, and to say where each number comes from."""

    name: str
    dataset: str
    model: str
    encoding: str
    seed: int
    metric: str
    """The metric of the report, which is the data set's."""
    direction: str
    """"min" or "max"."""
    best_epoch: int
    """Counted from 0. The best validation value of `selected_by` is at this epoch."""
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
    config: dict[str, Any] = field(default_factory=dict)
    """What config_hash is the hash of, with dotted keys. Empty in records older than this field."""
    resources: dict[str, Any] = field(default_factory=dict)
    """Peak memory and energy as far as this machine tells (training/resources.py). Empty in older records."""
    history_digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each split's stats.json. Empty in older records."""
    selection_metric: str = ""
    """The metric that picked the best epoch. Empty in older records; `selected_by` knows it for them, too."""
    extended_from: list[int] = field(default_factory=list)
    """For each `--extend`, the number of epochs before it. result-<epochs>.json holds the result from before."""
    initial_weights: dict[str, Any] = field(default_factory=dict)
    """Where the initial weights came from (`train.init_from`): file, epoch, SHA-256, tensors. Empty: random."""
    schema: int = SCHEMA

    @property
    def score(self) -> float:
        """The metric on test at the best validation epoch."""
        return self.best["test"][self.metric]

    @property
    def selected_by(self) -> str:
        """The metric that picked the best epoch. Older records name it in their configuration, `metric_best`."""
        configured = self.config.get("metric_best", "auto")
        return self.selection_metric or (self.metric if configured == "auto" else str(configured))

    def write(self, path: Path) -> None:
        """Write result.json with a digest of itself, whole or not at all."""
        write_record(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """Read result.json. Raises DataError where it is damaged, of another schema, or contradicts itself.

        A record must fit its digest. Records of the first schema have none; they are read as they are.
        """
        try:
            record = read_record(path, (BEFORE_DIGESTS, SCHEMA))
            known = {f.name for f in fields(cls)}
            missing = [
                f.name for f in fields(cls) if f.name not in record and f.default is f.default_factory is MISSING
            ]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing[:3])}" + (", .." if len(missing) > 3 else ""))
            result = cls(**{key: value for key, value in record.items() if key in known})
            contradiction = result.find_contradiction()
        except KeyError as err:
            raise DataError(f"{path} cannot be read as a result: it lacks {err}{CURE}") from err
        except (OSError, ValueError, AttributeError, TypeError) as err:
            raise DataError(f"{path} cannot be read as a result: {err}{CURE}") from err
        if contradiction:
            raise DataError(f"{path}: {contradiction}{CURE}")
        return result

    def find_contradiction(self) -> str:
        """Return what in this record cannot be true of a run, or "". Raises TypeError or KeyError for a foreign one."""
        values = vars(self)
        foreign = [name for kind, names in KINDS.items() for name in names if not isinstance(values[name], kind)]
        foreign += [name for name in (*WHOLE, *NUMBERS) if not is_measurement(values[name])]
        foreign += [name for name in WHOLE if type(values[name]) is not int]
        if foreign:
            return f"{foreign[0]} is {show(values[foreign[0]])}"
        if self.direction not in ("min", "max"):
            return f"direction is '{self.direction}', not min or max"
        for split in ("train", "val", "test"):
            if self.metric not in self.best[split]:
                return f"it has no number for {self.metric} on {split}"
            for name, value in self.best[split].items():
                if not is_measurement(value) and not (isinstance(value, float) and not math.isfinite(value)):
                    return f"{name} on {split} is {show(value)}"
        if self.selection_metric and self.selection_metric not in self.best["val"]:
            return f"it has no number for {self.selection_metric} on val, which picked the best epoch"
        foreign = [name for name, splits in self.encodings.items() if _is_foreign_encoding(splits)]
        if foreign:
            return f"encodings.{foreign[0]} is {show(self.encodings[foreign[0]])}, not a record for each split"
        for name in ("peak_process_bytes", "peak_device_bytes", "energy_joules"):
            if self.resources.get(name) is not None and not is_measurement(self.resources[name]):
                return f"{name} is {show(self.resources[name])}"
        if not 0 <= self.best_epoch < self.epochs:
            return f"the best epoch is {self.best_epoch} of {self.epochs}"
        if self.config and hash_config(self.config) != self.config_hash:
            return "its configuration does not have the hash that it names: one of them was changed by hand"
        return ""


def is_measurement(value: Any) -> TypeGuard[float]:
    """Whether a value is a number that can be computed with: finite, and no larger than LARGEST."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _is_foreign_encoding(splits: Any) -> bool:
    """Whether what stands for an encoding is something else than its record for each split."""
    if not isinstance(splits, dict) or not all(isinstance(of_split, dict) for of_split in splits.values()):
        return True
    for of_split in splits.values():
        status = of_split.get("status", [])
        numbers = [of_split.get(key, 0) for key in ("sampled_graphs", "num_graphs")]
        if not isinstance(status, list) or not all(isinstance(word, str) for word in status):
            return True
        if not all(map(is_measurement, numbers)):
            return True
    return False


def group_name(*, dataset: str, model: str, encoding: str, name: str) -> str:
    """Return the W&B group of a configuration: its seeds and their aggregate share it, and no other model does."""
    return f"{dataset}/{model}/{encoding}/{name}"


def hash_config(config: dict[str, Any]) -> str:
    """Return the SHA-256 of a configuration with dotted keys: what tells the seeds of one experiment from others."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def read_history(run_dir: Path, split: str, digest: str = "") -> list[dict[str, Any]]:
    """Read a split's stats.json: one record for each evaluated epoch.

    Raises DataError where it is damaged, or does not have this digest, one of `RunResult.history_digests`.
    """
    path = run_dir / split / "stats.json"
    try:
        content = path.read_bytes()
        lines = [json.loads(line) for line in content.splitlines()]
    except (OSError, ValueError, RecursionError) as err:
        raise DataError(f"{path} cannot be read: {err}") from err
    if digest and hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{path} is not as the run wrote it: it was damaged or changed, or the disk was full then")
    if not all(isinstance(line, dict) for line in lines):
        raise DataError(f"{path} cannot be read: a line of it is no record of an epoch")
    return lines


def compare_with_history(result: RunResult, run_dir: Path) -> list[str]:
    """Compare a record with the best epoch's lines of the stats.json files; return what cannot be compared, and why.

    Raises DataError where a line has another value than the record.
    """
    unknown = []
    for split in ("train", "val", "test"):
        path = run_dir / split / "stats.json"
        if not os.path.isfile(path):
            continue
        try:
            lines = [line for line in read_history(run_dir, split) if line.get("epoch") == result.best_epoch]
        except DataError as err:
            unknown.append(f"{err}; {run_dir / 'result.json'} could not be compared with it")
            continue
        if not lines:
            unknown.append(f"{path} has no line of epoch {result.best_epoch}, the best one, to compare the record with")
        for name, value in result.best[split].items():
            for there in (line[name] for line in lines if name in line):
                if there != value and not (there != there and value != value):
                    raise DataError(
                        f"{run_dir / 'result.json'}: {split} {name} is {value!r} at its best epoch, "
                        f"{result.best_epoch}, and {show(there)} in {path}: one of the two was damaged or "
                        "changed. Bring back the right one from a copy, or move both aside and start the run again"
                    )
    return unknown


def check_one_cell(results: Sequence[RunResult]) -> None:
    """Raise DataError, naming runs and keys, unless `results` are seeds of one configuration, data and encoding."""
    kinds: list[list[RunResult]] = []
    for result in results:
        for kind in kinds:
            if not differing_parts(kind[0], result):
                kind.append(result)
                break
        else:
            kinds.append([result])
    if len(kinds) > 1:
        rows = [f"seeds {seed_list(kind)} differ from {_describe(kinds[0], kind)}" for kind in kinds[1:]]
        raise DataError(f"'{results[0].name}' mixes runs that are not one: {'; '.join(rows)}. Give each its own name")


def differing_parts(one: RunResult, other: RunResult) -> list[str]:
    """Return in what two runs differ, with values: configuration, data, encoding, initial weights, metric, size."""
    parts = []
    if one.config_hash != other.config_hash:
        keys = sorted({*one.config, *other.config}) if one.config and other.config else []
        changed = [key for key in keys if one.config.get(key) != other.config.get(key)]
        told = [f"{key} {one.config.get(key)!r} and {other.config.get(key)!r}" for key in changed]
        parts.append(f"config_hash ({', '.join(told) or 'older records do not say which keys'})")
    splits = sorted({*one.fingerprints, *other.fingerprints})
    changed = [split for split in splits if one.fingerprints.get(split) != other.fingerprints.get(split)]
    if changed:
        parts.append(f"the data ({', '.join(changed)})")
    changed = _differing_encodings(one.encodings, other.encodings)
    if changed:
        parts.append(f"the encodings ({', '.join(changed)})")
    if one.initial_weights.get("sha256") != other.initial_weights.get("sha256"):
        parts.append("the initial weights")
    for what in ("dataset", "model", "encoding", "metric", "num_params"):
        if getattr(one, what) != getattr(other, what):
            parts.append(f"{what} ({getattr(one, what)} and {getattr(other, what)})")
    return parts


def seed_list(results: Sequence[RunResult]) -> str:
    """Return the seeds as text."""
    return ", ".join(str(result.seed) for result in results)


def _describe(reference: Sequence[RunResult], others: Sequence[RunResult]) -> str:
    return f"seeds {seed_list(reference)} in {', '.join(differing_parts(reference[0], others[0]))}"


def _differing_encodings(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return "name.split.key" of what differs in how two runs were encoded; where counts were kept does not matter."""
    found = []
    for name in sorted({*one, *other}):
        for split in sorted({*one.get(name, {}), *other.get(name, {})}):
            first, second = (records.get(name, {}).get(split, {}) for records in (one, other))
            of_sample = ("sampled_graphs" in first) != ("sampled_graphs" in second)
            keys = sorted({*first, *second} - HOW_NOT_WHAT - (OF_ALL_GRAPHS if of_sample else frozenset()))
            found += [f"{name}.{split}.{key}" for key in keys if first.get(key) != second.get(key)]
    return found


def aggregate(name_dir: Path) -> None:
    """Write agg/{train,val,test}/best.json over the finished seeds of one configuration, as GraphGym lays them out.

    Each seed counts at its own best epoch; `<metric>_std` is the sample deviation (ddof 1, 0.0 for one seed). Derived
    from result.json alone, so it may run at any time, twice, or in several processes. Folders with other names than
    seeds have, such as 0.old, do not count. Raises DataError where the seeds are not of one configuration, or a record
    is damaged or contradicts its stats.json.
    """
    paths = _find_results(name_dir)
    while paths:
        results = [RunResult.read(path) for path in paths]
        for result, path in zip(results, paths):
            compare_with_history(result, path.parent)
        _write_aggregate(name_dir / "agg", results)
        before, paths = paths, _find_results(name_dir)
        if paths == before:  # or a seed ended meanwhile, and its own aggregate may just have been overwritten
            return


def _find_results(name_dir: Path) -> list[Path]:
    paths = {path.parent.name: path for path in name_dir.glob("*/result.json")}
    seeds = sorted(int(name) for name in paths if name.isdecimal() and name == str(int(name)))
    return [paths[str(seed)] for seed in seeds]


def _write_aggregate(folder: Path, results: Sequence[RunResult]) -> None:
    check_one_cell(results)
    for split in ("train", "val", "test"):
        record: dict[str, Any] = {"seeds": [r.seed for r in results]}
        for metric in (name for name in results[0].best[split] if all(name in r.best[split] for r in results)):
            values = [r.best[split][metric] for r in results]
            known = all(map(math.isfinite, values))  # statistics knows no deviation of inf and nan
            record[metric] = statistics.fmean(values) if known else math.nan
            record[f"{metric}_std"] = (statistics.stdev(values) if len(values) > 1 else 0.0) if known else math.nan
        (folder / split).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / split / "best.json", (json.dumps(record) + "\n").encode())
