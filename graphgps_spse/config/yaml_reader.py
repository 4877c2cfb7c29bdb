"""The only reader of YAML: text becomes nodes that know their lines, strictly and within limits.

A configuration needs nested keys, lists, texts, numbers, True, False and null. Everything else that YAML offers is
refused with its line: anchors and aliases, merge keys, tags, dates, keys that are not text, keys that stand twice,
control characters. Nothing is ever executed, and no input takes longer than about a second.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from graphgps_spse.errors import ConfigError, show
from graphgps_spse.options import LARGEST_INT
from graphgps_spse.registry import nearest

MAX_BYTES = 100_000
"""Of a file; the shipped configurations have up to 3,000."""
MAX_NODES = 5_000
"""Keys and values of a file; a resolved configuration has about 500."""
MAX_DEPTH = 20
"""Levels of sections and lists in each other; a configuration has up to 4."""
MAX_KEY = 200
"""Characters of one key."""
MAX_TEXT = 4_096
"""Characters of one value: the longest path that Linux opens."""

_TOO_DEEP = f"more than {MAX_DEPTH} sections and lists in each other, the limit"

_LAYOUT = "\t\r\n"
_PRINTABLE = " -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"


class Entry(NamedTuple):
    """One key of a mapping."""

    key: str
    where: str
    """The line of the key; its value may begin on a later one."""
    node: "Node"


@dataclass(frozen=True)
class Node:
    """A value, and where it stands."""

    where: str
    """file:line, or the override."""
    value: Any
    """A mapping is a tuple of entries, a list is a list of nodes; otherwise a text, number, bool or None."""
    text: str = ""
    """A text, number, bool or null as it is written, without quotes."""

    @property
    def is_mapping(self) -> bool:
        """Whether `value` holds entries."""
        return isinstance(self.value, tuple)

    @property
    def is_list(self) -> bool:
        """Whether `value` holds nodes."""
        return isinstance(self.value, list)

    def plain(self) -> Any:
        """Return the value with everything in it: dicts, lists, texts, numbers, bools, None."""
        if self.is_mapping:
            return {entry.key: entry.node.plain() for entry in self.value}
        return [node.plain() for node in self.value] if self.is_list else self.value


def read_mapping(path: Path, kind: str) -> Node:
    """Return the mapping in a YAML file. Raises ConfigError with file and line, and calls the file a `kind` file."""
    node = _parse(_read_text(path, kind), str(path), has_lines=True)
    if not node.is_mapping:
        raise ConfigError(f"{path}: not a YAML mapping of keys to values")
    return node


def parse_word(text: str, where: str) -> Any:
    """Return the value of a word of the command line, which stands at `where`. Raises ConfigError."""
    text = text.strip()
    _check_characters(text, where)
    value = _parse(text, where, has_lines=False).plain()
    # A word is whole: " #", which begins a comment in a file, may be in the name of a folder.
    is_cut = text.startswith("#") or (isinstance(value, str) and value != "" and text.startswith(value))
    return text if is_cut else value


def check_key(key: str, where: str) -> None:
    """Raise ConfigError for a key that no configuration can have, before other messages repeat it."""
    if len(key) > MAX_KEY:
        raise ConfigError(f"{where}: the key {show(key)} has {len(key):,} characters; the limit is {MAX_KEY}")
    _check_characters(key, where)


def _read_text(path: Path, kind: str) -> str:
    content = b""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as err:
        raise ConfigError(f"no {kind} file {path}.{_nearest_file(path)}") from err
    except UnicodeDecodeError as err:
        line = content[: err.start].count(b"\n") + 1
        raise ConfigError(
            f"{path}:{line}: cannot be read as text: byte {content[err.start]:#04x} is not UTF-8"
        ) from err
    except OSError as err:
        raise ConfigError(f"{path}: cannot be read ({err.strerror})") from err
    except ValueError as err:
        raise ConfigError(f"no {kind} file can be called {show(str(path))}: {err}") from err
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: longer than {MAX_BYTES:,} bytes, the limit of a {kind} file")
    return text


def _nearest_file(path: Path) -> str:
    try:
        near = sorted(str(other) for other in path.parent.iterdir() if other.suffix == ".yaml")
    except OSError:
        return ""
    return nearest(str(path), near)


def _parse(text: str, source: str, *, has_lines: bool) -> Node:
    def locate(line: int) -> str:
        return f"{source}:{line + 1}" if has_lines else source

    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source}: {len(text):,} characters; the limit is {MAX_BYTES:,}")
    if strange := re.search(f"[^{_LAYOUT}{_PRINTABLE}]", text):
        _refuse_character(strange[0], locate(text.count("\n", 0, strange.start())))
    loader = _StrictLoader(text)
    try:
        root = loader.get_single_node()
        return Node(source, None) if root is None else _convert(root, locate)
    except _Refused as err:
        raise ConfigError(f"{locate(err.line)}: {err}") from err
    except yaml.YAMLError as err:
        mark, reason = getattr(err, "problem_mark", None), getattr(err, "problem", None) or str(err).partition("\n")[0]
        if "'\\t'" in reason:
            reason = "a tab where YAML allows spaces only; indent with spaces"
        raise ConfigError(f"{locate(mark.line if mark else loader.line)}: not valid YAML: {reason}") from err
    except (ValueError, OverflowError) as err:  # PyYAML's own conversions, as of the escape "\UFFFFFFFF"
        raise ConfigError(f"{locate(loader.line)}: not valid YAML: a number that is out of range") from err


class _Refused(Exception):
    """What YAML allows and configurations do not."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class _StrictLoader(yaml.SafeLoader):
    """Composes nodes as yaml does, within the limits and without anchors, aliases and tags."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.num_nodes = self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        event = self.peek_event()
        line = event.start_mark.line
        self.num_nodes += 1
        self.depth += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise _Refused("anchors and aliases (& and *) are not read; write the value out", line)
        if event.tag is not None:
            tag = show(event.tag.replace("tag:yaml.org,2002:", "!!"))
            raise _Refused(f"the tag {tag} is not read; write the value without it, a text in quotes", line)
        if self.num_nodes > MAX_NODES:
            raise _Refused(f"more than {MAX_NODES:,} keys and values, the limit of a file", line)
        if self.depth > MAX_DEPTH:
            raise _Refused(_TOO_DEEP, line)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        """Refuse depth before the scanner, whose work grows with its square, has read ahead."""
        if self.flow_level > MAX_DEPTH:
            raise _Refused(_TOO_DEEP, self.line)
        super().fetch_flow_collection_start(TokenClass)


def _convert(node: yaml.Node, locate: Callable[[int], str]) -> Node:
    """Return a node of yaml as one of ours, every value checked."""
    where = locate(node.start_mark.line)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Entry] = {}
        for key_node, value in node.value:
            key, place = _key_of(key_node, locate), locate(key_node.start_mark.line)
            if key in entries:
                raise ConfigError(f"{place}: key '{key}' stands twice, first at {entries[key].where}")
            entries[key] = Entry(key, place, _convert(value, locate))
        return Node(where, tuple(entries.values()))
    if isinstance(node, yaml.SequenceNode):
        return Node(where, [_convert(item, locate) for item in node.value])
    return Node(where, _scalar_of(node, where), node.value)


def _key_of(node: yaml.Node, locate: Callable[[int], str]) -> str:
    where = locate(node.start_mark.line)
    if node.tag == "tag:yaml.org,2002:merge":
        raise ConfigError(f"{where}: merge keys (<<) are not read; write the keys out, or use base:")
    if node.tag != "tag:yaml.org,2002:str":
        written = show(node.value) if isinstance(node, yaml.ScalarNode) else "a section or list"
        raise ConfigError(f"{where}: a key must be a text, and {written} is none in YAML; in quotes it is one")
    check_key(node.value, where)
    return str(node.value)


def _scalar_of(node: yaml.ScalarNode, where: str) -> Any:
    text, kind = node.value, node.tag.rpartition(":")[2]
    if len(text) > MAX_TEXT:
        raise ConfigError(f"{where}: a value of {len(text):,} characters; the limit is {MAX_TEXT:,}")
    _check_characters(text, where)
    if kind == "null":
        return None
    if kind == "bool":
        return yaml.SafeLoader.bool_values[text.lower()]
    if kind in ("int", "float"):
        return _number_of(node, kind, where)
    if kind == "timestamp":
        raise ConfigError(f"{where}: YAML reads {show(text)} as a date, which no key takes; in quotes it is a text")
    return text


def _number_of(node: yaml.ScalarNode, kind: str, where: str) -> int | float:
    convert = yaml.constructor.SafeConstructor()
    try:
        number = convert.construct_yaml_int(node) if kind == "int" else convert.construct_yaml_float(node)
    except (ValueError, OverflowError) as err:
        raise ConfigError(f"{where}: {show(node.value)} is no number that YAML can hold") from err
    if kind == "int" and abs(number) > LARGEST_INT:
        raise ConfigError(f"{where}: the number {show(node.value)} is beyond {LARGEST_INT:,}, the largest")
    return number


def _check_characters(text: str, where: str) -> None:
    if strange := re.search(f"[^{_PRINTABLE}]", text):
        _refuse_character(strange[0], where)


def _refuse_character(character: str, where: str) -> None:
    raise ConfigError(f"{where}: the character U+{ord(character):04X} may not stand in a key or a value; remove it")
