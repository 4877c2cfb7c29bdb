"""Tables for Python programs: a pandas DataFrame where pandas is installed, otherwise columns of arrays."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np


class Columns(Mapping[str, np.ndarray]):
    """Columns of equal length by name, in order: `table["mae"]` is an array, `table.rows()` yields dicts."""

    def __init__(self, columns: Mapping[str, Sequence[Any] | np.ndarray]) -> None:
        self._columns = {name: np.asarray(values) for name, values in columns.items()}
        assert len({len(values) for values in self._columns.values()}) <= 1, "columns of equal length"

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self._columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values."""
        for values in zip(*(column.tolist() for column in self._columns.values())):
            yield dict(zip(self._columns, values))

    def __repr__(self) -> str:
        shown = [
            list(self._columns),
            *([f"{value}" for value in row.values()] for row, _ in zip(self.rows(), range(10))),
        ]
        widths = [max(map(len, column)) for column in zip(*shown)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in shown]
        more = [f"... {self.num_rows:,} rows"] if self.num_rows > 10 else []
        return "\n".join([*lines, *more])


def as_table(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> Any:
    """Return columns of equal length as a pandas DataFrame, or as Columns where pandas is not installed."""
    if find_spec("pandas") is None:
        return Columns(columns)
    return import_module("pandas").DataFrame(dict(columns))
