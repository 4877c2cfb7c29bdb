"""Files that appear whole or not at all."""

import json
import os
import secrets
from pathlib import Path
from typing import Any


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
    finally:
        os.close(folder)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as indented JSON; floats keep every digit."""
    write_atomic(path, (json.dumps(record, indent=2) + "\n").encode())
