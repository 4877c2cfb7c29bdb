"""Configuration files and overrides as flat leaves: dotted keys, their values, and where each stands."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from graphgps_spse.errors import ConfigError, show
from graphgps_spse.yaml_reader import Node, check_key, parse_word, read_mapping

Leaves = dict[str, tuple[Any, str]]
"""Values by their dotted key, each with where it stands: file:line, or the override."""

MAX_BASES = 10
"""Files that a configuration may inherit from, one through the other."""


ONLY_ON_COMMAND_LINE = frozenset({"dataset.trust_data"})
"""Keys that no file may set: somebody else may have written it."""


def read_files(path: Path) -> tuple[Leaves, Leaves]:
    """Return what a configuration inherits and what it sets itself: the leaves of its bases, and its own.

    `base:` names a file, relative to the one it stands in, whose keys apply first; that file may have a base too.
    Raises ConfigError where a file cannot be read, and for a chain of bases that is a circle or too long.
    """
    own = _read_leaves(path)
    inherited: Leaves = {}
    chain, leaves = [path], own
    while "base" in leaves:
        name, where = leaves.pop("base")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: base: {show(name)} is no file name")
        chain.append(chain[-1].parent / name)
        listing = " -> ".join(str(file) for file in chain)
        if os.path.realpath(chain[-1]) in [os.path.realpath(file) for file in chain[:-1]]:
            raise ConfigError(f"{where}: base: the files inherit from each other in a circle: {listing}")
        if len(chain) > 1 + MAX_BASES:
            raise ConfigError(f"{where}: base: more than {MAX_BASES} files in a chain, the limit: {listing}")
        try:
            leaves = _read_leaves(chain[-1])
        except ConfigError as err:
            raise ConfigError(f"{where}: base: {err}") from err
        inherited = {**leaves, **inherited}
    inherited.pop("base", None)
    return inherited, own


def read_words(overrides: Sequence[str]) -> Leaves:
    """Return the leaves that overrides set: `key=value` words or `key value` pairs. Raises ConfigError."""
    leaves: Leaves = {}
    for key, text in _pairs(overrides):
        where = f"override {show(f'{key}={text}')}"
        leaves[key] = (parse_word(text, where), where)
    return leaves


def _read_leaves(path: Path) -> Leaves:
    """Return the leaves of a file, without those of the command line where it is a run's own record of all keys."""
    leaves = dict(_leaves(read_mapping(path, "configuration"), ""))
    is_record = leaves.get("resolved", (False, ""))[0] is True
    for key in ONLY_ON_COMMAND_LINE & leaves.keys():
        value, where = leaves.pop(key)
        if value is not False and not is_record:
            raise ConfigError(f"{where}: {key}: can be set only on the command line, by whoever runs it: {key}=True")
    return leaves


def _leaves(mapping: Node, prefix: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    for name, where, node in mapping.value:
        key = f"{prefix}{name}"
        if "." in name:
            raise ConfigError(f"{where}: write '{key}' as nested sections, not with a dot")
        if node.is_mapping:
            yield from _leaves(node, key + ".")
        else:
            yield key, (node.plain(), where)


def _pairs(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(overrides)
    for word in words:
        key, equals, text = word.partition("=")
        check_key(key, "override")
        value = text if equals else next(words, None)
        if value is None:
            raise ConfigError(f"override '{key}' has no value: write {key}=VALUE or '{key} VALUE'")
        yield key, value
