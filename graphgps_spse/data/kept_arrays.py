"""Cache of arrays on disk. File names contain a digest of the input."""

import hashlib
import io
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphgps_spse.data.npz import read_npz
from graphgps_spse.errors import DataError
from graphgps_spse.files import write_atomic

log = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]


def digest_of(texts: Iterable[str | bytes]) -> str:
    """Return a digest of a sequence of texts or bytes, 16 hexadecimal digits.

    Lengths are part of the digest, so that ["ab", "c"] and ["a", "bc"] differ.
    """
    digest = hashlib.sha256()
    for text in texts:
        content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:16]


def make_or_read(
    path: Path, make: Callable[[], Arrays], *, is_final: Callable[[Arrays], bool] = lambda arrays: True
) -> Arrays:
    """Return the arrays in the .npz file `path`, or call `make` and store its result in `path`.

    `path` must depend on all inputs of `make`. Arrays for which `is_final` is False are not stored. A damaged file is
    replaced, with a warning. If `path` cannot be written, the arrays are returned with a warning. Files are written
    atomically, so several processes may create the same file.
    """
    if path.is_file():
        try:
            return read_npz(path)
        except DataError as err:
            log.warning("%s; the file will be replaced", err)
    arrays = make()
    if not is_final(arrays):
        return arrays
    content, by_name = io.BytesIO(), dict[str, Any](arrays)
    np.savez(content, **by_name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content.getvalue())
    except OSError as err:
        log.warning("%s cannot be written (%s); the next run will compute its arrays again", path, err)
    return arrays
