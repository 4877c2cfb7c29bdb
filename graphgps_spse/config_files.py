"""Configuration files and overrides as flat leaves: dotted keys, their values, and where each stands."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import nearest

Leaves = dict[str, tuple[Any, str]]
"""Values by their dotted key, each with where it stands: file:line, or the override."""


def read_base(path: Path) -> Leaves:
    """Return the leaves of the file that `base:` names beside this one; none without it."""
    content = read_yaml(path)
    if "base" not in content:
        return {}
    name, where = content["base"]
    base = path.parent / str(name)
    if not base.is_file():
        raise ConfigError(f"{where}: base '{name}' is no file beside it ({base})")
    leaves = read_yaml(base)
    if "base" in leaves:
        raise ConfigError(f"{where}: its base {base} has a base of its own; one level is the limit")
    return leaves


def read_yaml(path: Path) -> Leaves:
    """Return every leaf of a YAML file by its dotted key, with its file:line. Nothing in it is ever executed."""
    return dict(_leaves(read_mapping(path, "configuration"), "", path))


def read_mapping(path: Path, kind: str) -> yaml.MappingNode:
    """Return a YAML file as yaml's nodes, which know their lines. Raises ConfigError, calling it a `kind` file."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except FileNotFoundError as err:
        near = [str(p) for p in sorted(path.parent.glob("*.yaml"))] if path.parent.is_dir() else []
        raise ConfigError(f"no {kind} file {path}.{nearest(str(path), near)}") from err
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read as a YAML text file: {err}") from err
    except yaml.YAMLError as err:
        raise _invalid(path, err) from err
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: not a YAML mapping of keys to values")
    return root


def value_of(node: yaml.Node, path: Path) -> Any:
    """Return what a node stands for: plain types, never an object of another kind."""
    try:
        return yaml.constructor.SafeConstructor().construct_document(node)
    except yaml.YAMLError as err:
        raise _invalid(path, err) from err


def _invalid(path: Path, err: yaml.YAMLError) -> ConfigError:
    mark = getattr(err, "problem_mark", None)
    where, reason = (f"{path}:{mark.line + 1}", getattr(err, "problem", None) or str(err)) if mark else (path, str(err))
    if "'\\t'" in reason:
        reason = "a tab where YAML allows spaces only; indent with spaces"
    return ConfigError(f"{where}: not valid YAML: {reason}")


def _leaves(node: yaml.MappingNode, prefix: str, path: Path) -> Iterator[tuple[str, tuple[Any, str]]]:
    seen = set()
    for key_node, value_node in node.value:
        where, key = f"{path}:{key_node.start_mark.line + 1}", f"{prefix}{key_node.value}"
        if "." in key_node.value:
            raise ConfigError(f"{where}: write '{key}' as nested sections, not with a dot")
        if key in seen:
            raise ConfigError(f"{where}: key '{key}' stands twice")
        seen.add(key)
        if isinstance(value_node, yaml.MappingNode):
            yield from _leaves(value_node, key + ".", path)
        else:
            yield key, (value_of(value_node, path), where)


def read_words(overrides: Sequence[str]) -> Leaves:
    """Return the leaves that overrides set: `key=value` words or `key value` pairs."""
    return {key: (_parse(text, f"override '{key}'"), f"override '{key}={text}'") for key, text in _pairs(overrides)}


def _pairs(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    words = iter(overrides)
    for word in words:
        key, equals, text = word.partition("=")
        value = text if equals else next(words, None)
        if value is None:
            raise ConfigError(f"override '{key}' has no value: write {key}=VALUE or '{key} VALUE'")
        yield key, value


def _parse(text: str, where: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise ConfigError(f"{where}: '{text}' is not a YAML value: {err}") from err
    # A word is whole: " #", which begins a comment in a file, may be in the name of a folder.
    return text.strip() if isinstance(value, str) and text.strip().startswith(value) else value
