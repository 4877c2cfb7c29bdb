"""The rows of a CSV of molecules, as they stand in the file: what can be read, and what cannot with the reason."""

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphgps_spse.errors import DataError
from graphgps_spse.files import write_atomic
from graphgps_spse.registry import nearest


class SmilesRow(NamedTuple):
    """A row whose cells could be read."""

    number: int
    """Its line as an editor counts, the header being line 1; of a row over several lines the first."""
    smiles: str
    cells: tuple[str, ...]
    """Of the other columns that were asked for, without spaces around them."""


class BadRow(NamedTuple):
    """A row that cannot be used, and why."""

    number: int
    smiles: str
    reason: str


def read_rows(path: Path, smiles_column: str, columns: Sequence[str] = ()) -> Iterator[SmilesRow | BadRow]:
    """Yield every row of a CSV in UTF-8 (.gz too) in order; empty lines are none.

    Raises DataError where the file or its header cannot be used.
    """
    try:
        if not path.is_file():
            beside = [str(p) for p in sorted(path.parent.glob("*.csv*"))] if path.parent.is_dir() else []
            raise DataError(f"no file {path}.{nearest(str(path), beside)}")
        binary = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({err.strerror})") from err
    with binary, io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        try:
            yield from _read_table(path, csv.reader(text, strict=True), smiles_column, columns)
        except (OSError, EOFError, zlib.error) as err:
            raise DataError(f"{path}: cannot be read to its end: {err}") from err


def write_bad_rows(bad: Iterable[BadRow], folder: Path) -> Path:
    """Write bad rows as CSV into `folder`, under a name that their content gives, and return the path."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "smiles", "reason"))
    writer.writerows(bad)
    content = text.getvalue().encode()
    path = folder / f"bad_rows-{hashlib.sha256(content).hexdigest()[:12]}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_atomic(path, content)
    except OSError as err:
        raise DataError(f"{folder}: the list of bad rows cannot be written ({err.strerror}); set dataset.dir") from err
    return path


def _read_table(path: Path, reader: Iterator, smiles_column: str, columns: Sequence[str]) -> Iterator:
    records = _records(reader)
    header = next(records, None)
    if header is None:
        raise DataError(f"{path}: is empty; its first line must name the columns")
    if isinstance(header, BadRow) or _odd_character("".join(header[1])):
        reason = header.reason if isinstance(header, BadRow) else _odd_character("".join(header[1]))
        raise DataError(f"{path}: its header {reason}")
    names = [name.strip() for name in header[1]]
    smiles_at, *others_at = (_column(path, names, wanted) for wanted in (smiles_column, *columns))
    for record in records:
        if isinstance(record, BadRow):
            yield record
            continue
        number, cells = record
        smiles = cells[smiles_at].strip() if smiles_at < len(cells) else ""
        odd = _odd_character("".join(cells))
        if len(cells) != len(names):
            yield BadRow(number, smiles, f"has {len(cells)} cells, and the header {len(names)}")
        elif odd:
            yield BadRow(number, "" if _odd_character(smiles) else smiles, odd)
        elif not smiles:
            yield BadRow(number, smiles, f"has no SMILES in column '{smiles_column}'")
        else:
            yield SmilesRow(number, smiles, tuple(cells[at].strip() for at in others_at))


def _records(reader: Iterator) -> Iterator[tuple[int, list[str]] | BadRow]:
    """Yield line number and cells. A row that is no CSV is a bad row, and the reader goes on with the next line."""
    while True:
        number = reader.line_num + 1  # type: ignore[attr-defined]
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as err:
            last = reader.line_num  # type: ignore[attr-defined]
            lines = f", up to line {last}" if last > number else ""
            yield BadRow(number, "", f"is no CSV{lines}: {err}; is there a quote that is never closed?")
            continue
        if cells:
            yield number, cells


def _odd_character(text: str) -> str:
    """Say what is wrong with the characters of a row, or return an empty string."""
    if any("\udc80" <= character <= "\udcff" for character in text):
        return "is not UTF-8 text; save the file as UTF-8"
    return "holds a zero byte; save the file as UTF-8 text" if "\0" in text else ""


def _column(path: Path, names: list[str], wanted: str) -> int:
    if names.count(wanted) == 1:
        return names.index(wanted)
    if wanted in names:
        raise DataError(f"{path}: its header names the column '{wanted}' {names.count(wanted)} times; rename one")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise DataError(f"{path}: its columns must be separated by commas; its header is {names[0]!r}")
    raise DataError(f"{path}: no column '{wanted}'.{nearest(wanted, names)} It has {', '.join(names)}")
