"""Arrays of .npz files: every byte is verified before it is believed, and nothing is ever unpickled."""

import io
import lzma
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from graphgps_spse.errors import DataError

_END_BYTES = 22  # of the record that ends a zip file, without its comment

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""What zipfile, its decompressors and numpy were seen to raise for files that are damaged or hold something else."""


def read_npz(path: Path, content: bytes | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name; `content` are its bytes where they are at hand.

    Raises DataError naming the file, and the array where one is damaged.
    """
    arrays = {}
    try:
        with path.open("rb") if content is None else io.BytesIO(content) as file, zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                try:  # read as a whole, as only the end of a member shows whether its checksum is right
                    whole = io.BytesIO(archive.read(member))
                    arrays[name] = np.lib.format.read_array(whole, allow_pickle=False)
                except UNREADABLE as err:
                    raise DataError(f"{path}: array {name} cannot be read ({type(err).__name__}: {err})") from err
            if len(archive.namelist()) != _count_members(file, archive):
                raise zipfile.BadZipFile("its directory does not list all of its members")
    except UNREADABLE as err:
        raise DataError(f"{path} is no readable .npz file ({type(err).__name__}: {err})") from err
    return arrays


def _count_members(file: IO[bytes], archive: zipfile.ZipFile) -> int:
    """Return how many members the end of a zip file says that there are: zipfile does not compare."""
    file.seek(-_END_BYTES - len(archive.comment), os.SEEK_END)
    return int.from_bytes(file.read(_END_BYTES)[10:12], "little")
