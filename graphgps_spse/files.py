"""Files that appear whole or not at all, and files that one process has for itself."""

import errno
import fcntl
import json
import logging
import os
import secrets
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` beside `path`, flush it to the disk and rename it into place; a failure leaves no trace."""
    # Not the process's number: on a shared disk those of two containers are often equal.
    tmp = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with tmp.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as err:
        if err.errno != errno.EINVAL:  # a file system that cannot do this for folders
            raise
    finally:
        os.close(folder)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as indented JSON; floats keep every digit."""
    write_atomic(path, (json.dumps(record, indent=2) + "\n").encode())


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
