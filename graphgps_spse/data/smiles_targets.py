"""Targets of user molecules: from the cells of a CSV to numbers, labels and classes."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graphgps_spse.data.smiles_file import SmilesRow, read_rows
from graphgps_spse.errors import DataError

MAX_CLASSES = 256
"""Classes that are found in a file; more must be listed in the configuration."""
FEW_CLASSES = 20
"""Different words up to which a column of text is taken for classes, in messages."""

_MAX_FLOAT32 = 3.4028234663852886e38


class TargetReader:
    """Converts the cells of the target columns of a row to numbers, and counts the words that are none."""

    def __init__(self, columns: Sequence[str], task: str, classes: Sequence[str] = ()) -> None:
        """`task` is a value of dataset.smiles.task, and `classes` are the names of the classes of multiclass."""
        self.columns, self.task = tuple(columns), task
        self.numbers = {name: float(number) for number, name in enumerate(classes)}
        self.words: dict[str, Counter[str]] = {column: Counter() for column in columns}
        """Column -> cells that are not numbers, and how often they occur."""
        self.num_read = Counter[str]()
        """Column -> cells that are numbers."""

    def read(self, cells: Sequence[str]) -> tuple[float, ...]:
        """Return the number of each cell, NaN for an empty cell. Raises ValueError with column and reason."""
        return tuple(self._read(text, column) for text, column in zip(cells, self.columns))

    def _read(self, text: str, column: str) -> float:
        if not text:
            return math.nan
        if self.task == "multiclass":
            name = class_name(text)
            if name not in self.numbers:
                raise ValueError(f"{column}: '{text[:40]}' is none of the classes {_listing(list(self.numbers))}")
            return self.numbers[name]
        value = to_float(text)
        if math.isnan(value):
            self.words[column][text[:40]] += 1
            raise ValueError(f"{column}: '{text[:40]}' is not a number; leave the cell empty if the target is unknown")
        self.num_read[column] += 1
        if abs(value) > _MAX_FLOAT32:
            raise ValueError(f"{column}: {text[:40]} is infinite or too large for float32")
        if self.task != "regression" and value not in (0.0, 1.0):
            raise ValueError(f"{column}: '{text[:40]}' is not a label; labels are 0 and 1")
        return value

    def hint(self) -> str:
        """Return advice if a column holds a few different words, which may be classes; otherwise an empty text."""
        for column, words in self.words.items():
            if 1 < len(words) <= FEW_CLASSES and words.total() > self.num_read[column]:
                return (
                    f". Column '{column}' holds the words {_listing(sorted(words))}: for classes, set "
                    "dataset.smiles.task=multiclass"
                )
        return ""


def find_classes(file: Path, smiles_column: str, column: str) -> tuple[str, ...]:
    """Return the classes in a column of a CSV: integers in numerical order, otherwise names in alphabetical order.

    Raises DataError unless there are 2 to MAX_CLASSES.
    """
    rows = (row for row in read_rows(file, smiles_column, [column]) if isinstance(row, SmilesRow))
    found = Counter(class_name(row.cells[0]) for row in rows if row.cells[0])
    if not 1 < len(found) <= MAX_CLASSES:
        if len(found) > MAX_CLASSES:
            problem = f"{len(found):,} different values, too many for classes: set dataset.smiles.task=regression, or "
            problem += "list the classes in dataset.smiles.classes"
        elif found:
            problem = f"the class '{next(iter(found))}' alone ({found.total():,} rows); at least two classes are needed"
        else:
            problem = "no value at all; add targets, or name another column in dataset.smiles.target_columns"
        raise DataError(f"{file}: column '{column}' holds {problem}")
    are_integers = all(re.fullmatch(r"[+-]?\d+", name) for name in found)
    return tuple(sorted(found, key=int) if are_integers else sorted(found))


def class_name(text: str) -> str:
    """Return the class of a cell. Tables with empty cells write integers as 1.0, which is the class 1."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", text)


def to_float(text: str) -> float:
    """Return the number in a cell of a table; NaN if it is none."""
    try:
        return float(text) if "_" not in text else math.nan  # Python would read 1_0 as 10
    except ValueError:
        return math.nan


def _listing(names: Sequence[str]) -> str:
    more = f" and {len(names) - FEW_CLASSES:,} more" if len(names) > FEW_CLASSES else ""
    return ", ".join(f"'{name}'" for name in names[:FEW_CLASSES]) + more
