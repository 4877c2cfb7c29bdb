"""Rows of a file of molecules in columns, so that a million rows need about a hundred bytes each."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np

from graphgps_spse.data.smiles_file import SmilesRow


class TextColumn(Sequence[str]):
    """A list of texts that grows at its end, kept as UTF-8 in a single buffer."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._content, self._ends = bytearray(), array("q", [0])
        for text in texts:
            self.append(text)

    def append(self, text: str) -> None:
        """Add a text."""
        self._content += text.encode()
        self._ends.append(len(self._content))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return (self._text(row) for row in range(len(self)))

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self._text(number) for number in range(len(self))[row]]
        return self._text(range(len(self))[row])

    def _text(self, row: int) -> str:
        return self._content[self._ends[row] : self._ends[row + 1]].decode()


class RowTable:
    """Rows with valid targets, in the order of the file."""

    def __init__(self, num_targets: int) -> None:
        self.num_targets, self.smiles = num_targets, TextColumn()
        self._numbers, self._targets, self._groups = array("q"), array("d"), array("q")
        self._group_names: dict[str, int] = {}

    def append(self, number: int, smiles: str, targets: Sequence[float], group: str) -> None:
        """Add a row: its line number, SMILES, targets (NaN for unknown ones), and its split or an empty text."""
        self.smiles.append(smiles)
        self._numbers.append(number)
        self._targets.extend(targets)
        self._groups.append(self._group_names.setdefault(group, len(self._group_names)))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> np.ndarray:
        """Line number of each row, [R] int64."""
        return np.array(self._numbers, np.int64)

    @property
    def targets(self) -> np.ndarray:
        """[R, T] float64, NaN for unknown targets."""
        return np.array(self._targets, np.float64).reshape(-1, self.num_targets)

    @property
    def groups(self) -> np.ndarray:
        """Split of each row if a column defines the splits, otherwise empty texts; [R] objects."""
        return np.array([*self._group_names, ""], dtype=object)[np.array(self._groups, np.int64)]


class SplitRows(Sequence[SmilesRow]):
    """Line number and SMILES of each graph of a split."""

    def __init__(self, numbers: np.ndarray, smiles: Sequence[str], rows: np.ndarray) -> None:
        """`rows` are the rows of the split, of which `numbers` and `smiles` have one entry each."""
        self._numbers, self._smiles, self._rows = numbers, smiles, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> SmilesRow: ...
    @overload
    def __getitem__(self, row: slice) -> list[SmilesRow]: ...
    def __getitem__(self, row: int | slice) -> SmilesRow | list[SmilesRow]:
        if isinstance(row, slice):
            return [self[number] for number in range(len(self))[row]]
        at = int(self._rows[row])
        return SmilesRow(int(self._numbers[at]), self._smiles[at], ())
