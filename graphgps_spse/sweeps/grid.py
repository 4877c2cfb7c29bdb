"""The grid of a sweep file: keys with values become combinations; keys may be coupled, so that they move together."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import yaml

from graphgps_spse.config.yaml_reader import Node
from graphgps_spse.errors import ConfigError, show

SAME = "same"
"""In place of a list of values: the values of the key above."""


class Setting(NamedTuple):
    """One key of a grid point."""

    key: str
    value: str
    is_named: bool
    """Whether the name of the run shows it; a key that follows another is not shown."""


Point = tuple[Setting, ...]
"""What one value of an axis sets."""


def read_grid(node: Node, check_key: Callable[[str, str], None]) -> list[list[Point]]:
    """Return the axes of a grid, each a list of points; every combination of points is run.

    An axis is `key: [values]`, or `key, key: [[value, value], ..]` for joint values; `key: same` gives a key the values
    of the one above it. `check_key(key, where)` refuses keys that no grid may have. Raises ConfigError with file and
    line.
    """
    if not node.is_mapping or not node.value:
        raise ConfigError(f"{node.where}: grid: expected dotted keys, each with a list of values")
    axes: list[list[Point]] = []
    seen: set[str] = set()
    for name, where, values in node.value:
        keys = [key.strip() for key in name.split(",")]
        for key in keys:
            check_key(key, where)
            if not key or key in seen:
                raise ConfigError(
                    f"{where}: grid: '{name}': " + ("a key is empty" if not key else f"'{key}' stands twice")
                )
            seen.add(key)
        if not values.is_list and values.text == SAME:
            axes[-1:] = [_follow(axes[-1] if axes else [], keys, where)]
        else:
            axes.append([_read_point(keys, item) for item in read_items(f"grid: {name}", values)])
    return axes


def name_point(point: Sequence[Setting]) -> tuple[str, list[str]]:
    """Return the suffix of the name and the key=value words of one combination."""
    suffix = "".join(f"-{setting.key.rpartition('.')[2]}{setting.value}" for setting in point if setting.is_named)
    suffix = "".join(c if c.isalnum() or c in "._+-" else "_" for c in suffix)
    return suffix, [f"{setting.key}={setting.value}" for setting in point]


def read_items(key: str, node: Node) -> list[Node]:
    """Return the items of a list. Raises ConfigError, naming `key`, for anything else and for an empty list."""
    if not node.is_list or not node.value:
        raise ConfigError(f"{node.where}: {key}: expected a list that is not empty")
    return list(node.value)


def _follow(axis: Sequence[Point], keys: Sequence[str], where: str) -> list[Point]:
    """Return an axis whose points set one more key, to the value of the first."""
    leaders = [setting for setting in (axis[0] if axis else ()) if setting.is_named]
    if len(leaders) != 1 or len(keys) != 1:
        raise ConfigError(
            f"{where}: grid: '{', '.join(keys)}: {SAME}' takes the values of the one key above, which must be a list; "
            "for several keys write joint values, 'a, b: [[1, 2], [3, 4]]'"
        )
    return [(*point, Setting(keys[0], point[0].value, is_named=False)) for point in axis]


def _read_point(keys: Sequence[str], item: Node) -> Point:
    if len(keys) == 1:
        return (Setting(keys[0], _as_word(item), is_named=True),)
    if not item.is_list or len(item.value) != len(keys):
        raise ConfigError(
            f"{item.where}: grid: {show(item.plain())} must be a list of {len(keys)} values, of {', '.join(keys)}"
        )
    return tuple(Setting(key, _as_word(value), is_named=True) for key, value in zip(keys, item.value))


def _as_word(node: Node) -> str:
    """Return a value as it stands in the file, or on one line if it is a list."""
    if node.is_mapping or node.is_list:
        return yaml.safe_dump(node.plain(), default_flow_style=True, width=10_000).strip()
    return node.text
