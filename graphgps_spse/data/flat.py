"""Flat graphs on disk: a folder of memory-mapped .npy files, written as a stream, there whole or not at all.

`<folder>/x.npy`, `edge_index.npy` ([E, 2]), `edge_attr.npy`, `y.npy`, `node_ptr.npy`, `edge_ptr.npy` and `meta.json`,
which says what they hold. Reading maps them: memory holds the pages in use, which all processes share.

A file that is cut short while it is in use is an error at the next batch (`MappedFile.check`). Only a cut between that
check and the access to a page, within the same batch, ends the process with SIGBUS. Shards of counts avoid this as each
record is read from the file; these arrays are tensors, which code indexes everywhere, so they are mapped.
"""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.data.base import GraphDataset, MappedFile
from graphgps_spse.errors import DataError
from graphgps_spse.files import new_folder, wait_for_lock, write_json

_FORMAT = 1
_HEADER_BYTES = 128
_ARRAYS = ("x", "edge_index", "edge_attr", "y", "node_ptr", "edge_ptr")


class FlatWriter:
    """Writes the graphs of one split, block after block, to a new folder; it can be read after `close`."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path = path
        self._files: dict[str, _ArrayFile] = {}
        self._num_nodes = self._num_edges = 0
        for name in ("node_ptr", "edge_ptr"):
            self._append(name, np.zeros(1, np.int64))

    def append(
        self,
        *,
        sizes: np.ndarray,
        num_edges: np.ndarray,
        x: np.ndarray,
        edge_index: np.ndarray,
        edge_attr: np.ndarray | None,
        y: np.ndarray,
    ) -> None:
        """Add some graphs: nodes and edges of each ([G]), and arrays as in GraphDataset, in the types to be kept.

        All blocks must agree in their types and in whether there are edge features.
        """
        node_ptr, edge_ptr = self._num_nodes + np.cumsum(sizes), self._num_edges + np.cumsum(num_edges)
        arrays = {"x": x, "edge_index": np.ascontiguousarray(edge_index.T), "y": y}
        arrays |= {"node_ptr": node_ptr.astype(np.int64), "edge_ptr": edge_ptr.astype(np.int64)}
        for name, array in (arrays | ({} if edge_attr is None else {"edge_attr": edge_attr})).items():
            self._append(name, array)
        self._num_nodes, self._num_edges = self._num_nodes + len(x), self._num_edges + edge_index.shape[1]

    def close(self, *, name: str, split: str, level: str = "graph", may_miss_targets: bool = False) -> None:
        """Finish the files, check every graph and keep the fingerprint. Raises DataError where a graph is unusable."""
        for file in self._files.values():
            file.close()
        meta: dict[str, Any] = {"format": _FORMAT, "name": name, "split": split, "level": level}
        meta |= {"may_miss_targets": may_miss_targets}
        meta["arrays"] = {key: [str(file.dtype), list(file.shape)] for key, file in self._files.items()}
        meta["fingerprint"] = GraphDataset(**_fields(self.path, meta)).fingerprint()
        write_json(self.path / "meta.json", meta)

    def _append(self, name: str, array: np.ndarray) -> None:
        if name not in self._files:
            self._files[name] = _ArrayFile(self.path / f"{name}.npy", array.dtype, array.shape[1:])
        self._files[name].append(array)


def load_flat(path: Path, *, num_graphs: int | None = None) -> GraphDataset:
    """Return the graphs of a folder, or its first `num_graphs`, memory-mapped.

    All of the folder is read once: its fingerprint must be the one of the graphs that were checked and written. Raises
    DataError where it is not.
    """
    try:
        meta = json.loads((path / "meta.json").read_text())
        if meta["format"] != _FORMAT:
            raise DataError(f"{path} has format {meta['format']}, and this version reads {_FORMAT}; move it away")
        fields = _fields(path, meta)
        graphs = GraphDataset(**fields, kept_fingerprint=meta["fingerprint"])
        if graphs.compute_fingerprint() != meta["fingerprint"]:
            raise ValueError("its arrays are not those that were written")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as err:
        raise DataError(
            f"{path} is damaged ({type(err).__name__}: {err}). Move it away and run the same command again: it is "
            "written anew"
        ) from err
    return graphs if num_graphs in (None, len(graphs)) else GraphDataset(**_first(fields, num_graphs))


def make_once(path: Path, make: Callable[[Path], None]) -> None:
    """Have make(folder) fill a new folder and call it `path`, unless that is there. It is whole or absent.

    Of processes that ask for it at the same time one makes it and the others wait, where the disk knows locks.
    Raises DataError where the disk is full or cannot be written.
    """
    if path.is_dir():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_name(f".{path.name}.lock").open("a") as lock:
            locked = wait_for_lock(lock)
            if path.is_dir():
                return
            if locked:  # so whoever began these is no more
                for leftover in path.parent.glob(f".{path.name}.*.tmp"):
                    shutil.rmtree(leftover)
            with new_folder(path) as tmp:
                make(tmp)
    except OSError as err:
        if path.is_dir():  # another process was faster, on a disk without locks
            return
        raise DataError(f"{path} cannot be written ({err}). Make room, or set dataset.dir to another folder") from err


class _ArrayFile:
    """One .npy file that grows by rows; its header is written last, when the number of rows is known."""

    def __init__(self, path: Path, dtype: np.dtype, row_shape: tuple[int, ...]) -> None:
        self.dtype, self._row_shape, self._num_rows = dtype, row_shape, 0
        self._file = path.open("xb")
        self._file.write(bytes(_HEADER_BYTES))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._num_rows, *self._row_shape

    def append(self, array: np.ndarray) -> None:
        if (array.dtype, array.shape[1:]) != (self.dtype, self._row_shape):
            raise ValueError(f"rows of {array.dtype} {array.shape[1:]}, after {self.dtype} {self._row_shape}")
        self._file.write(np.ascontiguousarray(array).data)
        self._num_rows += len(array)

    def close(self) -> None:
        """Write the header, whose shape is known only now, and everything to the disk."""
        self._file.seek(0)
        self._file.write(_header(self.dtype, self.shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def _header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    text = str(header).ljust(_HEADER_BYTES - 11) + "\n"
    return np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text.encode("latin1")


def _fields(path: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the GraphDataset in a folder. Raises ValueError for a file that is not as described."""
    known = [name for name in _ARRAYS if name in meta["arrays"]]
    tensors = {name: _map(path / f"{name}.npy", *meta["arrays"][name]) for name in known}
    return {
        "name": meta["name"],
        "split": meta["split"],
        "level": meta["level"],
        "may_miss_targets": meta["may_miss_targets"],
        "x_NF": tensors["x"],
        "edge_index_2E": tensors["edge_index"].T,
        "edge_attr_EF": tensors.get("edge_attr"),
        "y": tensors["y"],
        "node_ptr": tensors["node_ptr"],
        "edge_ptr": tensors["edge_ptr"],
        "files": tuple(MappedFile.of(path / f"{name}.npy") for name in known),
    }


def _map(path: Path, type_name: str, shape: list[int]) -> Tensor:
    dtype = np.dtype(type_name)
    if dtype.hasobject:
        raise ValueError(f"{path.name}: {type_name} is no type of numbers")
    with path.open("rb") as file:
        if file.read(_HEADER_BYTES) != _header(dtype, tuple(shape)):
            raise ValueError(f"{path.name} does not hold {type_name} {shape}, as meta.json says")
        size, expected = os.fstat(file.fileno()).st_size, _HEADER_BYTES + math.prod(shape) * dtype.itemsize
        if size != expected:
            raise ValueError(f"{path.name} has {size} bytes, and {expected} are {type_name} {shape}")
        if 0 in shape:  # nothing to map
            return torch.from_numpy(np.empty(shape, dtype))
        # Copy-on-write, as torch has no tensors that refuse to be written; nothing writes.
        return torch.from_numpy(np.memmap(file, dtype, "c", _HEADER_BYTES, tuple(shape)))


def _first(fields: dict[str, Any], num_graphs: int) -> dict[str, Any]:
    """Return the arguments of the first graphs: views, not copies."""
    nodes, edges = int(fields["node_ptr"][num_graphs]), int(fields["edge_ptr"][num_graphs])
    edge_attr = fields["edge_attr_EF"]
    return fields | {
        "x_NF": fields["x_NF"][:nodes],
        "edge_index_2E": fields["edge_index_2E"][:, :edges],
        "edge_attr_EF": None if edge_attr is None else edge_attr[:edges],
        "y": fields["y"][: num_graphs if fields["level"] == "graph" else nodes],
        "node_ptr": fields["node_ptr"][: num_graphs + 1],
        "edge_ptr": fields["edge_ptr"][: num_graphs + 1],
    }
