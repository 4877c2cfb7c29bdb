"""Readers of the image files of MNIST (idx) and CIFAR10 (binary version)."""

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graphgps_spse.errors import DataError

_NUM_CLASSES = 10
_MNIST_PREFIX = {"train": "train", "test": "t10k"}
_CIFAR_FILES = {
    "train": ("data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"),
    "test": ("test_batch.bin",),
}
_CIFAR_SHAPE = (3, 32, 32)


def read_mnist(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images [G, 28, 28, 1] and labels [G], both uint8, of "train" or "test", from idx files (also .gz).

    Raises DataError for a file that is missing, truncated, or not the expected idx file.
    """
    names = [f"{_MNIST_PREFIX[part]}-{kind}-ubyte" for kind in ("images-idx3", "labels-idx1")]
    paths = [_find(folder, [name, f"{name}.gz"]) for name in names]
    missing = [name for name, path in zip(names, paths) if path is None]
    if missing:
        raise DataError(f"MNIST, {part}: {folder} lacks {', '.join(missing)} (or these files with .gz)")
    images, labels = (_read_idx(path, num_dims) for path, num_dims in zip(paths, (3, 1)) if path)
    if images.shape[1:] != (28, 28):
        raise DataError(f"{paths[0]}: images of {images.shape[1]} x {images.shape[2]} pixels, expected 28 x 28")
    if len(images) != len(labels):
        raise DataError(f"{paths[0]} holds {len(images)} images, but {paths[1]} holds {len(labels)} labels")
    _check_labels(labels, str(paths[1]))
    return images[..., None], labels


def read_cifar10(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images [G, 32, 32, 3] and labels [G], both uint8, of "train" or "test", from the binary version.

    The files are in `folder` or in `folder`/cifar-10-batches-bin. Raises DataError for a missing or truncated file.
    """
    names = _CIFAR_FILES[part]
    paths = [_find(folder, [name, f"cifar-10-batches-bin/{name}"]) for name in names]
    missing = [name for name, path in zip(names, paths) if path is None]
    if missing:
        raise DataError(f"CIFAR10, {part}: {folder} lacks {', '.join(missing)} (files of the binary version)")
    records = np.concatenate([_read_records(path) for path in paths if path])
    images = records[:, 1:].reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 0].copy()


def _find(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_records(path: Path) -> np.ndarray:
    """Return [G, 3073] uint8. Each record is one label byte followed by the red, green and blue planes."""
    content, size = path.read_bytes(), 1 + int(np.prod(_CIFAR_SHAPE))
    if not content or len(content) % size:
        raise DataError(f"{path}: {len(content)} bytes, which is not a multiple of {size}; download the file again")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    _check_labels(records[:, 0], str(path))
    return records


def _read_idx(path: Path, num_dims: int) -> np.ndarray:
    """Read an idx file of unsigned bytes: 0, 0, type 8, number of dimensions, big-endian sizes, values."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as err:
        raise DataError(f"{path} is damaged ({err}); download the file again") from err
    magic = bytes((0, 0, 8, num_dims))
    if content[:4] != magic:
        found = content[:4].hex(" ") or "nothing"
        raise DataError(
            f"{path} is not an idx file of bytes with {num_dims} dimensions: it begins with {found}, expected "
            f"{magic.hex(' ')}"
        )
    begin = 4 + 4 * num_dims
    shape = [int(n) for n in np.frombuffer(content[4:begin], ">u4")] if len(content) >= begin else []
    expected = begin + int(np.prod(shape))
    if not shape or len(content) != expected or not shape[0]:
        raise DataError(f"{path}: {len(content)} bytes, but sizes {shape} need {expected}; download the file again")
    return np.frombuffer(content, np.uint8, offset=begin).reshape(shape)


def _check_labels(labels: np.ndarray, where: str) -> None:
    bad = np.flatnonzero(labels >= _NUM_CLASSES)
    if len(bad):
        raise DataError(f"{where}: label {labels[bad[0]]} of image {bad[0]} is not 0 to {_NUM_CLASSES - 1}")
