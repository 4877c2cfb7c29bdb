"""The configuration: every key with its default and meaning, and load_config(), which resolves, checks and freezes.

Key names are GraphGPS's. This is the only file that imports yacs.
"""

import importlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from yacs.config import CfgNode

from graphgps_spse.compat import read_leaves
from graphgps_spse.config_files import Leaves, find_publisher, locating, merge, read_chain, read_words
from graphgps_spse.errors import ConfigError
from graphgps_spse.identity import flatten
from graphgps_spse.key_hints import nearest_key
from graphgps_spse.options import Key, Options, option
from graphgps_spse.plugins import import_plugin
from graphgps_spse.publication import judge_expectation
from graphgps_spse.registry import ALL

log = logging.getLogger(__name__)

NEED_NOT_BE_READ = frozenset({"dataset.dir", "plugins", "resolved"})
"""Keys that a machine's own scripts set for every run: data sets that are generated have no folder."""


OTHER_MODULES = (
    "graphgps_spse.config",
    "graphgps_spse.publication",
    "graphgps_spse.rundir",
    "graphgps_spse.seeding",
    "graphgps_spse.cores",
    "graphgps_spse.environment",
)
"""Modules that declare options, besides those in the folders of components."""


class ConfigFileOptions(Options, section=""):
    """Keys that load_config reads."""

    name: str = option("", "the run's folder within out_dir; empty: the name of the file without .yaml")
    plugins: tuple[str, ...] = option((), "modules to import first, e.g. [my_lab.my_encoding], for their components")
    resolved: bool = option(False, "set by the program in a run's config.yaml, which sets every key, read or not")


def option_classes(plugins: Sequence[ModuleType] = ()) -> list[type[Options]]:
    """Return the options that the modules of this package, and those of plugins, declare."""
    found = [importlib.import_module(name) for name in OTHER_MODULES]
    found += [module for registry in ALL for module in registry.modules()]
    modules = {module.__name__: module for module in (*found, *plugins)}
    return [
        value
        for module in modules.values()
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Options)
        and value.section is not None
        and value.__module__ == module.__name__
    ]


def default_tree(classes: Iterable[type[Options]] | None = None) -> CfgNode:
    """Return a fresh tree of all keys with their defaults, those of `classes` (default: of the package) among them."""
    tree = CfgNode()
    for options in option_classes() if classes is None else classes:
        for key in options.all_keys():
            _declare(tree, key, options)
    return tree


def _declare(tree: CfgNode, key: Key, options: type[Options]) -> None:
    *sections, leaf = key.path.split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, CfgNode())
        if not isinstance(node, CfgNode):
            raise ConfigError(f"{options.__module__}.{options.__name__}: '{key.path}' would make a section of a key")
    if leaf in node:
        raise ConfigError(f"{options.__module__}.{options.__name__}: the key '{key.path}' is declared already")
    node[leaf] = list(key.default) if key.item else key.default


class Config:
    """A resolved configuration, read by attribute and never written: `cfg.gt.dim_hidden`.

    It notes which keys are read, so that a key which is set but changes nothing is an error and not a surprise.
    """

    def __init__(
        self,
        tree: CfgNode,
        set_keys: dict[str, str],
        prefix: str = "",
        read: set[str] | None = None,
        excused: frozenset[str] = frozenset(),
        places: dict[str, str] | None = None,
    ) -> None:
        """`set_keys` says where each key was set that something must read, but for those that are `excused`.

        `places` says it of every key that was set.
        """
        read, places = set() if read is None else read, {} if places is None else places
        self.__dict__.update(
            _tree=tree, _set_keys=set_keys, _prefix=prefix, _read=read, _excused=excused, _places=places
        )

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_") or key not in self._tree:
            raise AttributeError(f"the configuration has no key '{self._prefix}{key}'")
        value, path = self._tree[key], self._prefix + key
        if isinstance(value, CfgNode):
            return Config(value, self._set_keys, path + ".", self._read, self._excused, self._places)
        self._read.add(path)
        return tuple(value) if isinstance(value, list) else value

    def __setattr__(self, key: str, value: object) -> None:
        raise TypeError(f"the configuration is frozen; pass {self._prefix}{key}={value} on the command line instead")

    def check_all_read(self) -> None:
        """Raise ConfigError for a key that the file (not its base) or an override set and that nothing has read.

        In a file of GraphGPS, GRIT or CSA their own keys are only listed.
        """
        unread = sorted(path for path in self._set_keys if path not in self._read)
        excused, unread = [p for p in unread if p in self._excused], [p for p in unread if p not in self._excused]
        if excused:
            log.warning("set, but nothing in this run reads it: %s", ", ".join(excused))
        if unread:
            listing = "\n  ".join(f"{self._set_keys[path]}: '{path}'" for path in unread)
            raise ConfigError(f"set, but nothing in this run reads it; remove it or enable what reads it:\n  {listing}")

    def to_dict(self) -> dict[str, Any]:
        """Return the whole tree as plain nested dicts."""
        return _plain(self._tree)

    def with_values(self, **values: Any) -> "Config":
        """Return a copy with other values of top-level keys, e.g. `with_values(seed=4)`."""
        tree = self._tree.clone()
        tree.defrost()
        tree.update(values)
        tree.freeze()
        return Config(tree, self._set_keys, excused=self._excused, places=self._places)

    def locating(self) -> AbstractContextManager[None]:
        """Put file and line before a ConfigError of the body that begins with a key which was set."""
        return locating(self._places)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, the files of its `base:` and the overrides on top of the defaults, checked key by key.

    The file may be one of GraphGPS, GRIT or CSA (compat.py); what is then read in another way is logged. `overrides`
    are `key=value` words or `key value` pairs. Raises ConfigError naming the file, the line and the key.
    """
    path = Path(path)
    chain, words = read_chain(path), read_words(overrides)
    base, own = merge(chain, words)
    classes = option_classes(_import_plugins({**base, **own, **words}))
    reading = read_leaves(base, own, words)
    if reading.notes():
        notes = "\n  ".join(reading.notes()).replace(f"{path}:", "line ")
        log.warning("%s, keys of GraphGPS, GRIT and CSA:\n  %s", path, notes)
    tree = _build_tree(classes, reading.leaves)
    if not tree.name:
        tree.name = path.stem
    places = {key: where for key, (_, where) in reading.leaves.items()}
    with locating(places):
        _check_name(tree.name)
    publisher = find_publisher(chain)
    if publisher and not any(key.startswith("expected.") for key in words):
        published = _build_tree(classes, read_leaves(*merge(publisher, {}), {}).leaves)
        tree.expected.update(judge_expectation(_plain(tree), _plain(published), publisher[0][0]))
    tree.freeze()
    # Keys of the file may go unread in a section that an override touches, say by posenc_RRWP.enable=False.
    touched = {key.rpartition(".")[0] for key in reading.words}
    checked = {key for key in reading.own if key.rpartition(".")[0] not in touched} | reading.words
    if tree.resolved:
        checked = set(reading.words)
    set_keys = {key: reading.leaves[key][1] for key in checked - NEED_NOT_BE_READ}
    return Config(tree, set_keys, excused=frozenset(reading.excused), places=places)


def _build_tree(classes: Sequence[type[Options]], leaves: Leaves) -> CfgNode:
    tree, declared = default_tree(classes), {key.path: key for options in classes for key in options.all_keys()}
    for path, (value, where) in leaves.items():
        _set(tree, path, value, where, declared)
    return tree


def _import_plugins(leaves: Leaves) -> list[ModuleType]:
    """Import the plugins: their components register themselves, and their options join the tree."""
    (names, where), (out_dir, _) = leaves.get("plugins", ([], "")), leaves.get("out_dir", ("results", ""))
    with locating({"plugins": where}):
        ConfigFileOptions.check(plugins=names)
        return [import_plugin(name, results=["results", str(out_dir)]) for name in names]


def _check_name(name: str) -> None:
    if name.startswith(".") or not all(c.isalnum() or c in "._+-" for c in name):
        raise ConfigError(f"name: '{name}' becomes a folder, so it may hold only letters, digits and ._+-")


def _set(tree: CfgNode, key: str, value: Any, where: str, declared: dict[str, Key]) -> None:
    """Set one leaf after checking that it exists and that the value has its type and keeps its bounds."""
    *sections, leaf = key.split(".")
    node = tree
    for part in [*sections, leaf]:
        if not isinstance(node, CfgNode) or part not in node:
            raise ConfigError(f"{where}: unknown key '{key}'.{nearest_key(key, list(flatten(_plain(tree))))}")
        node, parent = node[part], node
    if isinstance(node, CfgNode):
        raise ConfigError(f"{where}: '{key}' is a section, not a value; its keys: {', '.join(sorted(node))}")
    try:
        checked = declared[key].check(value)
    except ConfigError as err:
        raise ConfigError(f"{where}: {err}") from err
    parent[leaf] = list(checked) if declared[key].item else checked


def _plain(tree: CfgNode) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return _plain(value) if isinstance(value, CfgNode) else list(value) if isinstance(value, list) else value

    return {key: plain(value) for key, value in tree.items()}
