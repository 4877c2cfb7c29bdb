"""A shard: the packed counts of consecutive graphs in one Arrow file, which is whole and verified or is not read.

A row is a graph, its column `crc32` a checksum over the metadata and everything else in the row. The key of the store,
the range of graphs and the cost of counting them stand in the metadata of the schema.

Files are read, never mapped into memory: a file that shrinks while it is in use is a read that comes back short, where
a mapping would end the process with SIGBUS.
"""

import json
import os
import weakref
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from graphgps_spse.encodings.storage.packing import PackedCounts
from graphgps_spse.errors import StoreError
from graphgps_spse.files import write_atomic

_PER_LENGTH = ("kind", "low", "step", "status")


class DamagedShardError(StoreError):
    """A file that is no shard, or not the shard that it should be."""


def shard_path(folder: Path, number: int, num_shards: int) -> Path:
    """Return the file of a shard, there or not."""
    return folder / f"shard-{number:05d}-of-{num_shards:05d}.arrow"


def write_shard(
    path: Path, key: str, first: int, packed: Sequence[PackedCounts], status_GK: np.ndarray, work: int
) -> None:
    """Write the counts of graphs `first`, first + 1, .. under `key`, the text that all shards of a store share."""
    columns: dict[str, np.ndarray] = {
        "index": first + np.arange(len(packed), dtype=np.int64),
        "n": np.array([graph.num_nodes for graph in packed], np.int32),
        "symmetric": np.array([graph.symmetric for graph in packed], np.uint8),
        "kind": np.stack([graph.kind_K for graph in packed]),
        "low": np.stack([graph.low_K for graph in packed]),
        "step": np.stack([graph.step_K for graph in packed]),
        "status": np.asarray(status_GK, np.int8),
    }
    metadata = {"key": key, "first": str(first), "last": str(first + len(packed)), "work": str(work)}
    seed = _seed(metadata)
    checksums = [_checksum(seed, columns, row, packed[row].payload) for row in range(len(packed))]
    arrays = {name: _as_arrow(values) for name, values in columns.items()}
    arrays["crc32"] = pa.array(checksums, pa.uint32())
    arrays["payload"] = pa.array([graph.payload for graph in packed], pa.large_binary())
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    write_atomic(path, sink.getvalue().to_pybytes())


class Shard:
    """A shard to read from. All but the packed counts is in memory; those of a graph are read when it is asked for."""

    def __init__(
        self, path: Path, key: str, first: int, sizes: np.ndarray, num_lengths: int, *, stay_open: bool = False
    ) -> None:
        """Open the shard of graphs `first` .. with `sizes` nodes each.

        With `stay_open` the file is opened once, and not again for each graph: then it may be renamed or deleted
        meanwhile. Raises DamagedShardError where it is not exactly that, FileNotFoundError where there is none. Rows
        are checked when they are read; `verify` checks them all.
        """
        self.path, self.first = path, first
        self._file: int | None = None
        try:
            with path.open("rb") as file:
                content = pa.py_buffer(file.read())
                if stay_open:
                    self._file = os.dup(file.fileno())
                    weakref.finalize(self, os.close, self._file)
            batch = _only_batch(path, pa.ipc.open_file(content))
            metadata = {name.decode(): value.decode() for name, value in (batch.schema.metadata or {}).items()}
            expected = {"key": key, "first": str(first), "last": str(first + len(sizes))}
            for name, value in expected.items():
                if metadata.get(name) != value:
                    raise DamagedShardError(f"{path} {_difference(name, metadata.get(name), value)}")
            batch.validate(full=True)
            self.work, self._seed = int(metadata["work"]), _seed(metadata)
            self._columns = {name: _as_numpy(path, batch, name, num_lengths).copy() for name in _layout()}
            self._places = _places_of_payloads(path, batch, content)
        except NotADirectoryError as err:
            raise FileNotFoundError(err.errno, err.strerror, str(path)) from err
        except (FileNotFoundError, PermissionError):
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError) as err:
            raise DamagedShardError(f"{path} is not a whole Arrow file of path counts: {err}") from err
        order = np.arange(first, first + len(sizes))
        if not np.array_equal(self._columns["n"], sizes) or not np.array_equal(self._columns["index"], order):
            raise DamagedShardError(f"{path} holds other graphs than it says")

    def __len__(self) -> int:
        return len(self._columns["n"])

    @property
    def status_GK(self) -> np.ndarray:
        """[G, K] int8, positions in list(Status)."""
        return self._columns["status"]

    @property
    def largest_step(self) -> float:
        """Twice the largest error of ln(1 + S) in this shard; 0 where every count is kept as it is."""
        return float(self._columns["step"].max(initial=0.0))

    def read(self, graph: int) -> PackedCounts:
        """Return the counts of one graph of the split. Raises DamagedShardError where its checksum does not fit."""
        row, columns = graph - self.first, self._columns
        payload = self._payload(row)
        if _checksum(self._seed, columns, row, payload) != columns["crc32"][row]:
            raise DamagedShardError(f"{self.path}: the record of graph {graph} does not fit its checksum")
        kind, low, step = (columns[name][row] for name in ("kind", "low", "step"))
        return PackedCounts(int(columns["n"][row]), bool(columns["symmetric"][row]), kind, low, step, payload)

    def _payload(self, row: int) -> bytes:
        begin, end = self._places[row : row + 2].tolist()
        try:
            if self._file is not None:
                payload = os.pread(self._file, end - begin, begin)
            else:
                with self.path.open("rb", buffering=0) as file:
                    payload = os.pread(file.fileno(), end - begin, begin)
        except OSError as err:
            raise DamagedShardError(f"{self.path} could be read before, and not any more ({err.strerror})") from err
        if len(payload) < end - begin:
            raise DamagedShardError(f"{self.path} was cut short while it was in use")
        return payload

    def verify(self) -> None:
        """Read every record once. Raises DamagedShardError as `read` does."""
        for graph in range(self.first, self.first + len(self)):
            self.read(graph)


def _layout() -> dict[str, pa.DataType]:
    """Type of each column but the payload; those of _PER_LENGTH hold K values a row."""
    types = {"index": pa.int64(), "n": pa.int32(), "symmetric": pa.uint8(), "kind": pa.uint8()}
    return types | {"low": pa.float64(), "step": pa.float64(), "status": pa.int8(), "crc32": pa.uint32()}


def _only_batch(path: Path, reader: pa.RecordBatchFileReader) -> pa.RecordBatch:
    if reader.num_record_batches != 1:
        raise DamagedShardError(f"{path} holds {reader.num_record_batches} batches of records, not one")
    return reader.get_batch(0)


def _as_arrow(values: np.ndarray) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    return flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def _as_numpy(path: Path, batch: pa.RecordBatch, name: str, num_lengths: int) -> np.ndarray:
    """A column as a view of the file, [rows] or [rows, K]."""
    column, kind = batch.column(name), _layout()[name]
    expected = pa.list_(kind, num_lengths) if name in _PER_LENGTH else kind
    if column.type != expected or column.null_count:
        raise DamagedShardError(f"{path}: column {name} is {column.type}, expected {expected} without gaps")
    if name in _PER_LENGTH:
        return column.flatten().to_numpy().reshape(len(column), num_lengths)
    return column.to_numpy()


def _places_of_payloads(path: Path, batch: pa.RecordBatch, content: pa.Buffer) -> np.ndarray:
    """Where in the file the payload of each row begins, and where the last ends: [rows + 1] int64."""
    column = batch.column("payload")
    if column.type != pa.large_binary() or column.null_count:
        raise DamagedShardError(f"{path}: column payload is {column.type}, not bytes without gaps")
    _, offsets, values = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    places = ends + (values.address - content.address if values is not None else 0)
    if places.min() < 0 or places.max() > content.size:
        raise DamagedShardError(f"{path}: column payload is compressed")
    return places


def _seed(metadata: dict[str, str]) -> int:
    return zlib.crc32(" ".join(metadata[name] for name in ("key", "first", "last", "work")).encode())


def _checksum(seed: int, columns: dict[str, np.ndarray], row: int, payload: Any) -> int:
    """CRC-32 of everything in a row, begun with that of the metadata."""
    fields = [columns[name][row].tobytes() for name in ("index", "n", "symmetric", *_PER_LENGTH)]
    return zlib.crc32(payload, zlib.crc32(b"".join(fields), seed))


def _difference(name: str, found: str | None, expected: str) -> str:
    """Say how a shard's metadata differ from what they should be."""
    if name != "key":
        return f"ends or begins at graph {found}, not {expected}"
    try:
        there = dict(json.loads(found or ""))
    except (ValueError, TypeError):
        return "does not say what it holds"
    here = json.loads(expected)
    differing = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
    return "belongs elsewhere: " + ", ".join(f"{key} {there.get(key)!r}, not {here.get(key)!r}" for key in differing)
