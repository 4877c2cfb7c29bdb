"""Reader of the rows of a CSV of molecules. Invalid rows are returned with the reason."""

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
    """A valid row of the CSV."""

    number: int
    """First line of the row in the file; the header is line 1."""
    smiles: str
    cells: tuple[str, ...]
    """Stripped cells of the other requested columns."""


class BadRow(NamedTuple):
    """An invalid row, and the reason."""

    number: int
    smiles: str
    reason: str


def read_rows(path: Path, smiles_column: str, columns: Sequence[str] = ()) -> Iterator[SmilesRow | BadRow]:
    """Yield the rows of a UTF-8 CSV (or .csv.gz), in order. Empty lines are skipped.

    Raises DataError if the file cannot be read or its header is invalid.
    """
    try:
        if not path.is_file():
            beside = [str(p) for p in sorted(path.parent.glob("*.csv*"))] if path.parent.is_dir() else []
            raise DataError(f"{path} does not exist.{nearest(str(path), beside)}")
        binary = gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    except OSError as err:
        raise DataError(f"{path} cannot be read ({err.strerror})") from err
    with binary, io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
        try:
            yield from _read_table(path, csv.reader(text, strict=True), smiles_column, columns)
        except (OSError, EOFError, zlib.error) as err:
            raise DataError(f"{path} cannot be read to the end: {err}") from err


def write_list(rows: Iterable[BadRow], folder: Path, name: str) -> Path:
    """Write rows and reasons to the CSV `name`-<digest of the content> in `folder`. Return the path."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "smiles", "reason"))
    writer.writerows(rows)
    content = text.getvalue().encode()
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_atomic(path, content)
    except OSError as err:
        raise DataError(
            f"{folder}: the list of rows cannot be written ({err.strerror}); set dataset.dir to another folder"
        ) from err
    return path


def _read_table(path: Path, reader: Iterator, smiles_column: str, columns: Sequence[str]) -> Iterator:
    records = _records(reader)
    header = next(records, None)
    if header is None:
        raise DataError(f"{path} is empty; the first line must name the columns")
    if isinstance(header, BadRow) or _invalid_character("".join(header[1])):
        reason = header.reason if isinstance(header, BadRow) else _invalid_character("".join(header[1]))
        raise DataError(f"{path}: the header {reason}")
    names = [name.strip() for name in header[1]]
    smiles_at, *others_at = (_column(path, names, wanted) for wanted in (smiles_column, *columns))
    for record in records:
        if isinstance(record, BadRow):
            yield record
            continue
        number, cells = record
        smiles = cells[smiles_at].strip() if smiles_at < len(cells) else ""
        invalid = _invalid_character("".join(cells))
        if len(cells) != len(names):
            yield BadRow(number, smiles, f"has {len(cells)} cells, but the header has {len(names)}")
        elif invalid:
            yield BadRow(number, "" if _invalid_character(smiles) else smiles, invalid)
        elif not smiles:
            yield BadRow(number, smiles, f"has no SMILES in column '{smiles_column}'")
        else:
            yield SmilesRow(number, smiles, tuple(cells[at].strip() for at in others_at))


def _records(reader: Iterator) -> Iterator[tuple[int, list[str]] | BadRow]:
    """Yield line number and cells of each row. A row that is not valid CSV gives a BadRow, and reading continues."""
    while True:
        number = reader.line_num + 1  # type: ignore[attr-defined]
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as err:
            last = reader.line_num  # type: ignore[attr-defined]
            lines = f", up to line {last}" if last > number else ""
            yield BadRow(number, "", f"is not valid CSV{lines}: {err}; check for a quote that is never closed")
            continue
        if cells:
            yield number, cells


def _invalid_character(text: str) -> str:
    """Return a message about invalid characters in a row, or an empty string."""
    if any("\udc80" <= character <= "\udcff" for character in text):
        return "is not UTF-8 text; save the file as UTF-8"
    return "contains a zero byte; save the file as UTF-8 text" if "\0" in text else ""


def _column(path: Path, names: list[str], wanted: str) -> int:
    if names.count(wanted) == 1:
        return names.index(wanted)
    if wanted in names:
        raise DataError(f"{path}: the header names the column '{wanted}' {names.count(wanted)} times; rename one")
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise DataError(f"{path}: columns must be separated by commas; the header is {names[0]!r}")
    raise DataError(f"{path}: no column '{wanted}'.{nearest(wanted, names)} Columns: {', '.join(names)}")
