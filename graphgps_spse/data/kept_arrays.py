"""Arrays that take long to make, kept on disk under a name that follows from what they are made of."""

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


def digest_of(texts: Iterable[str]) -> str:
    """Return a digest of some texts in their order, each with its length, so that no two lists share one by joining."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:16]


def make_or_read(
    path: Path, make: Callable[[], Arrays], *, is_final: Callable[[Arrays], bool] = lambda arrays: True
) -> Arrays:
    """Return the arrays of an .npz file, or make them and, if they are final, keep them.

    `path` must name everything that they follow from.

    A damaged file is made anew, with a warning, and so are arrays that no disk takes: a cache may be missing. Processes
    that make the same file at the same time each write it whole.
    """
    if path.is_file():
        try:
            return read_npz(path)
        except DataError as err:
            log.warning("%s; it is made anew", err)
    arrays = make()
    if not is_final(arrays):
        return arrays
    content, by_name = io.BytesIO(), dict[str, Any](arrays)
    np.savez(content, **by_name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content.getvalue())
    except OSError as err:
        log.warning("%s cannot be kept (%s); the next start makes it again", path, err)
    return arrays
