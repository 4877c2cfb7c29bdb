"""Options: the keys of a configuration, declared as frozen dataclasses beside the code that reads them.

    class RRWPOptions(Options, section="posenc_RRWP"):
        "Random walk probabilities of all pairs."

        ksteps: int = option(21, "number of channels, the identity included", at_least=1)

declares the key `posenc_RRWP.ksteps`. The configuration tree, its checks, `--list` and the reference of all keys are
assembled from these classes, so a default, its meaning and its bounds stand in one place.
"""

import dataclasses
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, dataclass_transform

from graphgps_spse.errors import ConfigError, show
from graphgps_spse.registry import nearest

LARGEST_INT = 2**63 - 1
"""Bound of every whole number that declares none: what numpy and torch can hold."""


@dataclass(frozen=True)
class Rule:
    """What a key means and which values it takes."""

    doc: str
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    """Numbers of items that a list may have; empty: any."""
    key: str = ""
    """The key within its section where it is not the field's name, e.g. `eigen.max_freqs`."""
    source: str = ""
    """Where the default comes from: a paper, a code base."""


def option(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    lengths: Sequence[int] = (),
    key: str = "",
    source: str = "",
) -> Any:
    """Return a dataclass field that declares a key. Bounds of a list hold for each of its items.

    `default` is a bool, int, float, str or tuple; the annotation of a tuple tells the type of its items.
    """
    rule = Rule(doc, at_least, above, at_most, below, tuple(choices), tuple(lengths), key, source)
    return dataclasses.field(default=default, metadata={"rule": rule})


def same_option(owner: "type[Options]", name: str) -> Any:
    """Return a dataclass field that declares a key with the default, the meaning and the bounds of another class's."""
    field = {field.name: field for field in dataclasses.fields(owner)}[name]  # type: ignore[arg-type]
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclass(frozen=True)
class Key:
    """One key of the configuration."""

    path: str
    """Dotted, e.g. `posenc_RRWP.ksteps`."""
    field: str
    """The attribute of the options that holds its value."""
    kind: type
    """bool, int, float, str or tuple."""
    item: type | None
    """The type of the items of a tuple."""
    default: Any
    rule: Rule

    @property
    def type_name(self) -> str:
        """The type in words, e.g. `list of int`."""
        return f"list of {self.item.__name__}" if self.item else self.kind.__name__

    def check(self, value: Any) -> Any:
        """Return `value` in the type of the key. Raises ConfigError, which begins with the path, for a bad value."""
        if not self.item:
            checked = convert(value, self.kind, f"{self.path}: must be of type {self.type_name}", self.default)
            if isinstance(checked, str):  # choices are found however they are capitalised
                checked = next((c for c in self.rule.choices if c.lower() == checked.lower()), checked)
            self._check_bounds(checked)
            return checked
        if not isinstance(value, list | tuple):
            raise ConfigError(
                f"{self.path}: must be a {self.type_name} (default {list(self.default)}), not {show(value)}"
            )
        if self.rule.lengths and len(value) not in self.rule.lengths:
            lengths = " or ".join(map(str, self.rule.lengths))
            raise ConfigError(f"{self.path}: {show(list(value))} must have {lengths} items ({self.rule.doc})")
        return tuple(
            Key(f"{self.path}: item {number}", self.field, self.item, None, None, self.rule).check(item)
            for number, item in enumerate(value, 1)
        )

    def _check_bounds(self, value: Any) -> None:
        rule, problem = self.rule, ""
        if isinstance(value, str):
            if rule.choices and value not in rule.choices:
                hint = nearest(value, list(rule.choices))
                problem = f"'{value}' is none of {', '.join(rule.choices)}{'.' if hint else ''}{hint}"
        elif isinstance(value, float) and not math.isfinite(value):
            problem = f"{value} is not a finite number"
        elif isinstance(value, int) and abs(value) > LARGEST_INT:
            problem = f"{show(value)} is beyond 64 bits"
        elif not isinstance(value, bool):
            if rule.at_least is not None and value < rule.at_least:
                problem = f"{value} is below {_bound(rule.at_least)}"
            elif rule.above is not None and value <= rule.above:
                problem = f"{value} is not above {_bound(rule.above)}"
            elif rule.at_most is not None and value > rule.at_most:
                problem = f"{value} is above {_bound(rule.at_most)}"
            elif rule.below is not None and value >= rule.below:
                problem = f"{value} is not below {_bound(rule.below)}"
        if problem:
            raise ConfigError(f"{self.path}: {problem} ({rule.doc})")


def _bound(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def convert(value: Any, kind: type, must_be: str, default: Any) -> Any:
    """Return `value` as `kind`: whole numbers and the strings of PyYAML's `1e-5` are floats, None is an empty string.

    Raises ConfigError, which begins with `must_be`, for anything else.
    """
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    elif kind is str and value is None:
        return ""
    elif kind is str and value is False and default == "off":  # YAML reads the word off as False
        return "off"
    elif type(value) is kind:
        return value
    hint = "" if default is None else f" (default {default!r})"
    raise ConfigError(f"{must_be}{hint}, not {show(value)}")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Options:
    """Base of all options. A subclass is a frozen dataclass; its instances hold checked values."""

    section: ClassVar[str | None] = None
    """Where the keys stand in the configuration; empty for the top level. Several classes may share a section.

    None: the class declares no keys by itself. Others inherit it, or include it.
    """
    includes: "ClassVar[tuple[type[Options], ...]]" = ()
    """Classes without a section of their own, whose keys stand in this section too. They are read apart."""

    def __init_subclass__(cls, *, section: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if section is not None:
            cls.section = section
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for key in self.keys():
            object.__setattr__(self, key.field, key.check(getattr(self, key.field)))

    @classmethod
    def keys(cls, section: str | None = None) -> list[Key]:
        """Return the keys in the order of declaration, under `section` instead of the class's own where it is given."""
        prefix = cls.section if section is None else section
        hints, keys = typing.get_type_hints(cls), []
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            rule, hint = field.metadata["rule"], hints[field.name]
            kind = typing.get_origin(hint) or hint
            item = typing.get_args(hint)[0] if kind is tuple else None
            path = f"{prefix or ''}.{rule.key or field.name}".lstrip(".")
            keys.append(Key(path, field.name, kind, item, field.default, rule))
        return keys

    @classmethod
    def all_keys(cls) -> list[Key]:
        """Return the keys of this class and of those that it includes."""
        return [*cls.keys(), *(key for other in cls.includes for key in other.keys(cls.section))]

    @classmethod
    def check(cls, **values: Any) -> None:
        """Raise ConfigError, beginning with the name of the field, for a value that it does not take."""
        for key in cls.keys(""):
            if key.field in values:
                key.check(values[key.field])

    @classmethod
    def from_cfg(cls, cfg: Any, section: str | None = None) -> Self:
        """Read every key of these options from a configuration."""
        return cls(**{key.field: key.check(_value_at(cfg, key.path)) for key in cls.keys(section)})


def _value_at(cfg: Any, path: str) -> Any:
    for part in path.split("."):
        cfg = getattr(cfg, part)
    return cfg
