"""What a user may ask of a counting method, checked once, in one record."""

from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from operator import index
from typing import Any, Self

from graphgps_spse.errors import ConfigError

READ_BY = {
    "exact": ("max_work",),
    "dag": ("seed", "R", "D_dfs", "N", "min_roots", "repeats"),
    "sampled": ("seed", "budget"),
    "auto": ("seed", "budget"),
}
"""The options that each method reads."""


@dataclass(frozen=True)
class CountOptions:
    """Options of all methods; each reads those that concern it. Raises ConfigError for a value that makes no sense."""

    seed: int = 0
    """dag, sampled, auto: equal seeds give equal bits, whatever the number of threads or the order of the graphs."""
    max_work: int = 100_000_000_000
    """exact: work allowed for one graph, in units of about a nanosecond; lengths beyond it are "not_counted"."""
    budget: int = 100_000_000
    """sampled, auto: work to spend on one graph, in units of about a nanosecond."""
    R: float = 1.0
    """dag: share of the nodes that become roots, in (0, 1]."""
    D_dfs: int = 6
    """dag: most depth-first levels before the breadth-first search."""
    N: int = 1
    """dag: tries for each root and depth."""
    min_roots: int = 8
    """dag: roots that small graphs get at least, where they have so many nodes."""
    repeats: int = 1
    """dag: how often all of it is done, each time with other random numbers."""

    def __post_init__(self) -> None:
        lowest = {"seed": 0, "max_work": 1, "budget": 1, "D_dfs": 0, "N": 1, "min_roots": 0, "repeats": 1}
        for name, minimum in lowest.items():
            value = getattr(self, name)
            try:
                number = None if isinstance(value, bool) else index(value)
            except TypeError:
                number = None
            if number is None or not minimum <= number < 1 << 62:
                raise ConfigError(f"{name}: must be a whole number of at least {minimum}; got {value!r}")
        if isinstance(self.R, bool) or not isinstance(self.R, int | float) or not 0.0 < self.R <= 1.0:
            raise ConfigError(f"R: the share of nodes that become roots lies in (0, 1]; got {self.R!r}")

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Return the options given by name. Raises ConfigError for an unknown name, with the nearest."""
        if not options:
            return cls._defaults()
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f" Did you mean '{close[0]}'?" if close else ""
                raise ConfigError(f"unknown counting option '{name}'.{hint} Known: {', '.join(known)}")
        return cls(**options)

    @classmethod
    def for_method(cls, method: str, **options: Any) -> Self:
        """Return the options given by name. Raises ConfigError also for an option that the method does not read."""
        asked, read = cls.of(**options), READ_BY.get(method, tuple(options))
        unread = [name for name in options if name not in read]
        if unread:
            what = f"option{'s' * (len(unread) > 1)} {', '.join(unread)}"
            raise ConfigError(f"method '{method}' does not read the {what}. It reads: {', '.join(read)}")
        return asked

    @classmethod
    @cache
    def _defaults(cls) -> Self:
        return cls()
