"""A sweep file becomes runs: configurations x grid points x seeds, each checked, none twice; and their manifest."""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from graphgps_spse.bench.launch import Task, main_command
from graphgps_spse.config import Config, load_config
from graphgps_spse.config_files import read_mapping, value_of
from graphgps_spse.errors import ConfigError, DataError, LaunchError
from graphgps_spse.files import wait_for_lock, write_json
from graphgps_spse.registry import nearest

SCHEMA = 1
MANIFEST = "sweep.json"
KEYS = {
    "out_dir": "folder of all runs; results/<name of this file> if absent",
    "configs": "YAML files or patterns, relative to this file",
    "seeds": "a number, or a list of seeds",
    "overrides": "key=value words for every run",
    "grid": "dotted keys, each with a list of values; every combination is run",
    "include": "other sweep files, relative to this one, in place of all other keys",
}
OURS = ("name", "seed", "out_dir")
"""Keys that place a run, which the sweep sets by itself."""


@dataclass(frozen=True)
class Run:
    """One seed of one configuration at one grid point."""

    config: Path
    own_name: str
    """What the configuration is called by itself: its `name`, or its file's."""
    name: str
    """The same and the grid point."""
    seed: int
    out_dir: Path
    """The sweep's folder, which holds the manifest."""
    group: str
    """The configuration's folder, e.g. GRIT: it tells configurations of the same name apart. May be empty."""
    overrides: tuple[str, ...]
    where: str
    """file:line that asks for it."""
    cfg: Config
    """The resolved configuration, of any seed."""

    @property
    def relative_dir(self) -> str:
        """The run's folder below the sweep's, e.g. GRIT/zinc-SPSE/3."""
        return "/".join(part for part in (self.group, self.name, str(self.seed)) if part)

    @property
    def run_dir(self) -> Path:
        """Where main.py keeps everything of this run."""
        return self.out_dir / self.relative_dir

    def resolved(self) -> dict[str, Any]:
        """The configuration as nested dicts, with this run's seed."""
        return {**self.cfg.to_dict(), "seed": self.seed}

    def task(self, num_threads: int = 0) -> Task:
        """The process that does it, with so many threads unless the configuration or the sweep sets them itself."""
        placed = [f"name={self.name}"] if self.name != self.own_name else []
        placed += [f"seed={self.seed}", f"out_dir={_as_text(str(self.out_dir / self.group))}"]
        threads = [f"num_threads={num_threads}"] if num_threads and not self.cfg.num_threads else []
        words = [*main_command(), "--cfg", str(self.config), *self.overrides, *placed, *threads]
        return Task(self.relative_dir, self.run_dir, tuple(words))


def read_sweep(path: Path) -> list[Run]:
    """Return every run that a sweep file asks for. Raises ConfigError, naming file and line, for what cannot be run."""
    runs = list(_read(path))
    first: dict[Path, Run] = {}
    for run in runs:
        if run.run_dir in first:
            raise ConfigError(
                f"{run.where}: {run.run_dir} is listed twice, first at {first[run.run_dir].where}; "
                "a run has one place, so remove one of the two"
            )
        first[run.run_dir] = run
    return runs


def write_manifest(sweep: str, runs: Sequence[Run]) -> None:
    """Write sweep.json into every folder of these runs: what is intended, so that reports can say 7/10.

    Several sweeps may share a folder: each replaces the runs that it alone listed before and keeps the others'.
    """
    for out_dir in sorted({run.out_dir for run in runs}):
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            with (out_dir / f".{MANIFEST}.lock").open("a") as lock:
                wait_for_lock(lock)
                _update_manifest(out_dir / MANIFEST, sweep, [run for run in runs if run.out_dir == out_dir])
        except OSError as err:
            raise LaunchError(f"{out_dir}: cannot be written ({err.strerror}); choose another out_dir") from err


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a sweep.json. Raises DataError where it is damaged or of another schema."""
    try:
        record = json.loads(path.read_text())
        if record["schema"] != SCHEMA:
            raise DataError(f"{path}: schema {record['schema']!r}, this version reads {SCHEMA}")
        return [dict(run, sweeps=list(run["sweeps"]), dir=str(run["dir"])) for run in record["runs"]]
    except (OSError, ValueError, TypeError, KeyError) as err:
        raise DataError(f"{path} cannot be read as a sweep's manifest: {err!r}; move it aside") from err


def _update_manifest(path: Path, sweep: str, runs: Sequence[Run]) -> None:
    listed = {}
    for old in read_manifest(path) if path.is_file() else []:
        others = [name for name in old["sweeps"] if name != sweep]
        if others:
            listed[old["dir"]] = {**old, "sweeps": others}
    for run in runs:
        sweeps = {*listed.get(run.relative_dir, {}).get("sweeps", []), sweep}
        listed[run.relative_dir] = {
            "config": shorten(run.config),
            "name": run.name,
            "seed": run.seed,
            "dir": run.relative_dir,
            "overrides": list(run.overrides),
            "sweeps": sorted(sweeps),
        }
    write_json(path, {"schema": SCHEMA, "runs": [listed[key] for key in sorted(listed, key=_by_seed)]})


def shorten(path: Path) -> str:
    """Return a path relative to the current folder where it lies below it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def _by_seed(relative_dir: str) -> tuple[str, int]:
    head, _, seed = relative_dir.rpartition("/")
    return head, int(seed)


def _read(path: Path, is_included: bool = False) -> Iterator[Run]:
    keys = _read_keys(path)
    if "include" in keys:
        if is_included or set(keys) != {"include"}:
            why = "an included file includes no other" if is_included else "include stands alone; no other key applies"
            raise ConfigError(f"{_line(path, keys['include'])}: {why}")
        for item in _items(path, "include", keys["include"]):
            yield from _read(path.parent / _text(path, item), is_included=True)
        return
    if "configs" not in keys:
        raise ConfigError(f"{path}: no configs, so nothing to run; keys: {', '.join(KEYS)}")
    out_dir = Path(_text(path, keys["out_dir"])) if "out_dir" in keys else Path("results") / path.stem
    seeds = _read_seeds(path, keys["seeds"]) if "seeds" in keys else [0]
    words = _read_overrides(path, keys["overrides"]) if "overrides" in keys else []
    points = _read_grid(path, keys["grid"]) if "grid" in keys else [("", [])]
    for config, where in _read_configs(path, keys["configs"]):
        folder = Path(os.path.abspath(config)).parent.name
        group = "" if folder == out_dir.name else folder
        resolved: dict[str, dict[str, Any]] = {}
        for suffix, assignments in points:
            overrides = (*words, *assignments)
            try:
                cfg = load_config(config, [*overrides, f"seed={seeds[0]}"])
            except ConfigError as err:
                raise ConfigError(f"{where}: {err}") from err
            twin = next((other for other, tree in resolved.items() if other != suffix and tree == cfg.to_dict()), None)
            if twin is not None:
                raise ConfigError(
                    f"{_line(path, keys['grid'])}: grid: '{twin[1:]}' and '{suffix[1:]}' are the same "
                    f"run of {config}, written in two ways; remove one of the two"
                )
            resolved[suffix] = cfg.to_dict()
            own_name, name = cfg.name, cfg.name + suffix
            cfg = cfg.with_values(name=name)
            for seed in seeds:
                yield Run(config, own_name, name, seed, out_dir, group, overrides, where, cfg)


def _read_keys(path: Path) -> dict[str, yaml.Node]:
    keys: dict[str, yaml.Node] = {}
    for key_node, value in read_mapping(path, "sweep").value:
        key = str(key_node.value)
        if key not in KEYS:
            known = "; ".join(f"{name} ({meaning})" for name, meaning in KEYS.items())
            raise ConfigError(f"{_line(path, key_node)}: unknown key '{key}'.{nearest(key, list(KEYS))} Keys: {known}")
        if key in keys:
            raise ConfigError(f"{_line(path, key_node)}: key '{key}' stands twice")
        keys[key] = value
    return keys


def _read_configs(path: Path, node: yaml.Node) -> Iterator[tuple[Path, str]]:
    for item in _items(path, "configs", node):
        pattern, where = _text(path, item), _line(path, item)
        base = Path(os.path.relpath(path.parent / Path(pattern).parent))  # without the .. of configs/sweeps/../GRIT
        found = sorted(base.parent.glob(f"{base.name}/{Path(pattern).name}")) if "*" in pattern else []
        if "*" in pattern and not found:
            raise ConfigError(f"{where}: no configuration file matches {base / Path(pattern).name}")
        yield from ((config, where) for config in found or [base / Path(pattern).name])


def _read_seeds(path: Path, node: yaml.Node) -> list[int]:
    value = value_of(node, path)
    seeds = list(range(value)) if type(value) is int else value
    good = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not good or not seeds:
        raise ConfigError(
            f"{_line(path, node)}: seeds: {value!r} leaves nothing to run; write their number, e.g. 10 for 0 to 9, "
            "or a list of numbers, e.g. [0, 1, 2]"
        )
    return seeds


def _read_overrides(path: Path, node: yaml.Node) -> list[str]:
    words = []
    for item in _items(path, "overrides", node):
        word = _text(path, item)
        _check_key(path, item, word.partition("=")[0])
        if "=" not in word:
            raise ConfigError(f"{_line(path, item)}: overrides: '{word}' is not of the form key=value")
        words.append(word)
    return words


def _read_grid(path: Path, node: yaml.Node) -> list[tuple[str, list[str]]]:
    """Return (suffix of the name, key=value words) for every combination of the grid's values."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        raise ConfigError(f"{_line(path, node)}: grid: expected dotted keys, each with a list of values")
    axes = []
    for key_node, values in node.value:
        key = str(key_node.value)
        _check_key(path, key_node, key)
        axes.append([(key, _as_word(path, item)) for item in _items(path, f"grid: {key}", values)])
    points = []
    for point in itertools.product(*axes):
        suffix = "".join(f"-{key.rpartition('.')[2]}{value}" for key, value in point)
        suffix = "".join(c if c.isalnum() or c in "._+-" else "_" for c in suffix)
        points.append((suffix, [f"{key}={value}" for key, value in point]))
    return points


def _check_key(path: Path, node: yaml.Node, key: str) -> None:
    if key in OURS:
        raise ConfigError(f"{_line(path, node)}: '{key}' is set by the sweep itself, from configs, seeds and out_dir")


def _items(path: Path, key: str, node: yaml.Node) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        raise ConfigError(f"{_line(path, node)}: {key}: expected a list that is not empty")
    return list(node.value)


def _text(path: Path, node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        raise ConfigError(f"{_line(path, node)}: expected one word, not {value_of(node, path)!r}")
    return str(node.value)


def _as_text(text: str) -> str:
    """Return a text as an override that means it: quoted where YAML would read something else."""
    try:
        is_itself = yaml.safe_load(text) == text
    except yaml.YAMLError:
        is_itself = False
    return text if is_itself else json.dumps(text, ensure_ascii=False)


def _as_word(path: Path, node: yaml.Node) -> str:
    """Return a value as it stands in the file, or on one line if it is a list."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return yaml.safe_dump(value_of(node, path), default_flow_style=True, width=10_000).strip()


def _line(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"
