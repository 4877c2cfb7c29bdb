"""Files that appear whole or not at all, and files that one process has for itself."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, TextIO

log = logging.getLogger(__name__)

BEFORE_DIGESTS = 1
"""The schema of records that were written before records had a digest."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, flush it to the disk and rename it into place; a failure leaves no trace."""
    tmp = _temporary_beside(path)
    try:
        with tmp.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
    _flush_folder(path.parent)


@contextmanager
def write_new(path: Path) -> Iterator[TextIO]:
    """Give a text file (UTF-8, line ends as they are) that becomes `path` when the block ends, or leaves no trace.

    Nothing is replaced: of several writers the first to finish has the name, and the others get FileExistsError.
    """
    tmp = _temporary_beside(path)
    try:
        with tmp.open("x", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(tmp, path)  # a rename would replace what is there
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: whoever makes the empty file may replace it
            path.touch(exist_ok=False)
            tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
    _flush_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give the name of a folder to make and fill; it becomes `path` when the block ends, or leaves no trace.

    Raises OSError where `path` is there and not empty: of several writers the first to finish has the name.
    """
    tmp = _temporary_beside(path)
    try:
        yield tmp
        tmp.rename(path)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)


def _temporary_beside(path: Path) -> Path:
    """Return a hidden name in the same folder that no other process uses."""
    # Not the process's number: on a shared disk those of two containers are often equal.
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as err:
        if err.errno != errno.EINVAL:  # a file system that cannot do this for folders
            raise
    finally:
        os.close(folder)


def move_aside(path: Path) -> Path:
    """Rename a damaged file to the first of path.damaged-1, path.damaged-2, ... that is free, and return that."""
    return path.rename(next(name for k in count(1) if not (name := Path(f"{path}.damaged-{k}")).exists()))


def free_name(path: Path) -> Path:
    """Return `path` if nothing has this name, else the first free of stem-2.suffix, stem-3.suffix, ..."""
    names = (path if k == 1 else path.with_stem(f"{path.stem}-{k}") for k in count(1))
    return next(name for name in names if not os.path.lexists(name))


def keep_copy(path: Path, copy: Path) -> None:
    """Give a file that `write_atomic` will replace a second name, so that the content of now stays.

    A `copy` that is this file already is left alone, and another file of this name is not replaced. Nothing happens if
    `path` is not there.
    """
    if not path.is_file() or (copy.exists() and copy.samefile(path)):
        return
    copy = free_name(copy)
    try:
        os.link(path, copy)
    except OSError:  # a file system without hard links
        write_atomic(copy, path.read_bytes())


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as indented JSON; floats keep every digit."""
    write_atomic(path, (json.dumps(record, indent=2) + "\n").encode())


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record with a digest of its content, for `read_record`; it needs a key "schema" above BEFORE_DIGESTS."""
    write_json(path, with_digest(record))


def with_digest(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record and, under "digest", the SHA-256 of its content: keys in any order, any spaces between them."""
    content = json.loads(json.dumps(record))  # keys are texts from here on, and sort as texts
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return {**content, "digest": hashlib.sha256(text.encode()).hexdigest()}


def read_record(path: Path, schemas: Sequence[int]) -> dict[str, Any]:
    """Return what `write_record` wrote, once its digest fits; a record of schema BEFORE_DIGESTS need not have one.

    Raises ValueError saying what is wrong with the content, OSError where there is none to read.
    """
    try:
        record = json.loads(path.read_bytes())
        if not isinstance(record, dict):
            raise ValueError(f"it holds a {type(record).__name__}, not keys and values")
        schema, digest = record.get("schema"), record.pop("digest", "")
        if schema not in schemas or type(schema) is not int:
            raise ValueError(f"schema {schema!r}, this version reads {' and '.join(map(str, schemas))}")
        fitting = with_digest(record)["digest"]
    except RecursionError as err:
        raise ValueError("it is nested too deeply") from err
    if digest == "" and schema != BEFORE_DIGESTS:
        raise ValueError("it lacks its digest")
    if digest not in ("", fitting):
        raise ValueError("it does not fit its digest, so it was damaged or changed by hand")
    return record


def try_lock(file: IO[str]) -> bool | None:
    """Lock an open file against other processes until all who inherit it have ended.

    True; False where another has it; None where the file system has no locks, as Lustre mounted without them.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as err:
        log.debug("%s: no locks here (%s)", file.name, err)
        return None
    return True


def wait_for_lock(file: IO[str]) -> bool:
    """Lock an open file, when others that have it are done; return whether the file system has locks."""
    locked = try_lock(file)
    if locked is False:
        log.info("another process works under %s; waiting for it", file.name)
        fcntl.flock(file, fcntl.LOCK_EX)
    return locked is not None
