"""Path counts kept on disk, for data sets whose counts cost more than reading them: f is applied when they are read.

`<store.dir>/<data set>-<split>-<method>-<key>/` holds one file for each range of graphs (shards.py) and manifest.json,
which tells people what is there. The key is a hash over the graphs and all that their counts depend on, so that a
folder is either right or another one. A shard is whole or absent, so processes may fill a store at the same time and
be killed at any time: work is wasted, nothing is damaged.
"""

import errno
import fcntl
import hashlib
import json
import logging
import math
import random
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.counting.graphs import pair_offsets, take
from graphgps_spse.counting.parallel import Progress, chunk_bounds
from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.encodings.base import Cost, GraphArrays
from graphgps_spse.encodings.path_counts import CountRequest, sample_counts, scale_up
from graphgps_spse.encodings.storage.packing import PackedCounts, pack_counts
from graphgps_spse.encodings.storage.shards import DamagedShardError, Shard, shard_path, write_shard
from graphgps_spse.encodings.storage.stored_counts import StoredCounts
from graphgps_spse.errors import DataError, StoreError
from graphgps_spse.files import move_aside, write_json
from graphgps_spse.human_readable import as_duration, as_size

log = logging.getLogger(__name__)

_FORMAT = 1
_SHARD_VALUES = 1 << 24  # counts of one shard: 64 MiB of float32 when decoded, seconds to minutes of counting
_SECONDS_BETWEEN_LINES = 60
_ROUNDS = 3
_HASHED_AT_ONCE = 1 << 20


class StoreEstimate(NamedTuple):
    """What the counts of a split cost, from a sample of its graphs."""

    cost: Cost
    num_bytes: int
    """Size of the packed counts."""


class CountStore:
    """The counts of one split, some or all of them on disk. Making one looks for its folder and writes nothing."""

    def __init__(self, root: Path, name: str, graphs: GraphArrays, request: CountRequest) -> None:
        """`name`, of the data set and split, is for people; equal graphs share a folder whatever they are called."""
        self.graphs, self.request, self.name = graphs, request, name
        self._sizes = np.diff(graphs.node_ptr).astype(np.int32)
        record = {"format": _FORMAT, "graphs": fingerprint(graphs), "num_graphs": len(self._sizes), **request.key()}
        self.key = json.dumps(record, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(self.key.encode()).hexdigest()[:16]
        own = root / f"{_as_file_name(name)}-{request.method}-{digest}"
        try:
            others = sorted(path for path in root.glob(f"*-{digest}") if path.is_dir())
        except OSError as err:
            raise StoreError(f"store.dir: {root} cannot be read ({err.strerror}); set it to another folder") from err
        self.path = own if own in others or not others else others[0]
        self._bounds = chunk_bounds(pair_offsets(graphs.node_ptr), max(1, _SHARD_VALUES // request.max_length))

    def __len__(self) -> int:
        return len(self._bounds)

    def shard_path(self, number: int) -> Path:
        """The file of a shard, there or not."""
        return shard_path(self.path, number, len(self))

    def num_graphs(self, numbers: Iterable[int]) -> int:
        """Graphs of some shards."""
        return sum(self._bounds[number][1] - self._bounds[number][0] for number in numbers)

    def find_files(self) -> list[int]:
        """Return the shards that have a file, whatever is in it."""
        return [number for number in range(len(self)) if self.shard_path(number).is_file()]

    def find_missing(self, numbers: Iterable[int], progress: Progress | None = None) -> list[int]:
        """Return those of some shards that are not there. Every record of the others is verified.

        A damaged or foreign file is named in the log and renamed, never read and never deleted.
        """
        missing = []
        for number in numbers:
            try:
                self._open(number).verify()
            except FileNotFoundError:
                missing.append(number)
                continue
            except PermissionError as err:
                raise StoreError(f"{self.shard_path(number)} cannot be read ({err.strerror})") from err
            except DamagedShardError as err:
                self._move_aside(number, err)
                missing.append(number)
                continue
            if progress is not None:
                progress(self.num_graphs([number]))
        return missing

    @cached_property
    def estimate(self) -> StoreEstimate:
        """What counting the whole split costs, from a sample."""
        sample, num_bytes, num_pairs = list(sample_counts(self.graphs, self.request)), 0, 0
        for graph, counts_PK, *_ in sample:
            if counts_PK is not None:
                num_bytes += len(pack_graph(counts_PK, int(self._sizes[graph]), graph).payload)
                num_pairs += len(counts_PK)
        # A sample that nothing survived: two bytes for half of the pairs.
        ratio = num_bytes / num_pairs if num_pairs else float(self.request.max_length)
        of_each = 17 * self.request.max_length + 32
        total = math.ceil(ratio * int(pair_offsets(self.graphs.node_ptr)[-1])) + of_each * len(self._sizes)
        return StoreEstimate(scale_up(sample, len(self._sizes)), total)

    def complete(self, *, num_threads: int = 1, progress: Progress | None = None) -> StoredCounts:
        """Make sure of all counts and return them for reading. Raises what `ensure` does."""
        missing = self.find_missing(range(len(self)), progress)
        if missing:
            log.info("%s: counting %s, into %s", self.name, self.describe(missing, num_threads), self.path)
            self._fill_until_sound(missing, num_threads, progress)
        return self.read()

    def ensure(self, numbers: Iterable[int], *, num_threads: int = 1, progress: Progress | None = None) -> None:
        """Verify the shards that are there, and count those that are not.

        Raises DataError where a graph cannot be counted, StoreError where the folder cannot be written.
        """
        self._fill_until_sound(self.find_missing(numbers, progress), num_threads, progress)

    def _fill_until_sound(self, missing: list[int], num_threads: int, progress: Progress | None) -> None:
        for _ in range(_ROUNDS):
            if not missing:
                return
            missing = self.find_missing(self.fill(missing, num_threads=num_threads, progress=progress), progress)
        if missing:
            raise StoreError(f"{self.path}: {len(missing)} shards are damaged whenever they appear. Is the disk sound?")

    def describe(self, numbers: Sequence[int], num_threads: int) -> str:
        """Return what filling some shards will take: graphs, predicted time and bytes."""
        share = self.num_graphs(numbers) / max(1, len(self._sizes))
        cost, num_bytes = self.estimate
        more = "more than " if cost.at_least else ""
        return (
            f"{self.num_graphs(numbers):,} of {len(self._sizes):,} graphs, "
            f"about {more}{as_duration(cost.seconds(num_threads) * share)} on {num_threads} "
            f"{'thread' if num_threads == 1 else 'threads'}, {as_size(num_bytes * share)}"
        )

    def read(self) -> StoredCounts:
        """Return all counts for reading. Raises StoreError where a shard is missing or not what it should be."""
        return StoredCounts(
            self.path, self.key, [first for first, _ in self._bounds], self._sizes, self.request.max_length
        )

    def fill(self, numbers: Sequence[int], *, num_threads: int = 1, progress: Progress | None = None) -> list[int]:
        """Count and write some shards; return those that another process wrote meanwhile.

        The order is random, so that processes that fill the same store mostly do different shards.
        """
        order = random.Random().sample(list(numbers), len(numbers))
        by_others, started, said, done = [], time.perf_counter(), time.perf_counter(), 0
        with self._writable(len(numbers)):
            for position, number in enumerate(order):
                if self.shard_path(number).exists():
                    by_others.append(number)
                    continue
                self._fill_one(number, order[position:], num_threads, progress)
                done, now = done + 1, time.perf_counter()
                if now - said > _SECONDS_BETWEEN_LINES:
                    left = (now - started) / done * (len(order) - position - 1)
                    log.info(
                        "%s: %d of %d shards, about %s left", self.name, position + 1, len(order), as_duration(left)
                    )
                    said = now
        return by_others

    def _fill_one(self, number: int, pending: list[int], num_threads: int, progress: Progress | None) -> None:
        first, last = self._bounds[number]
        found: dict[int, PackedCounts] = {}

        def pack(begin: int, end: int, chunk: ChunkCounts) -> None:
            self.request.check(first + begin, chunk)
            row = 0
            for graph in range(begin, end):
                size = int(self._sizes[first + graph])
                rows = chunk.counts[row : row + size * size]
                found[graph] = pack_graph(rows, size, first + graph)
                row += size * size

        graphs = GraphArrays(*take(*self.graphs, first, last))
        status_GK, work = self.request.map(graphs, pack, num_threads=num_threads, progress=progress)
        packed = [found[row] for row in range(last - first)]
        try:
            write_shard(self.shard_path(number), self.key, first, packed, status_GK, work)
        except OSError as err:
            raise self._cannot_write(err, pending, sum(len(graph.payload) for graph in packed), number) from err

    def _open(self, number: int) -> Shard:
        first, last = self._bounds[number]
        path, sizes = self.shard_path(number), self._sizes[first:last]
        return Shard(path, self.key, first, sizes, self.request.max_length)

    def _move_aside(self, number: int, reason: DamagedShardError) -> None:
        try:
            aside = move_aside(self.shard_path(number))
        except FileNotFoundError:
            return  # another process was faster
        except OSError as err:
            raise StoreError(f"{reason}; it cannot be moved aside ({err.strerror}), so rename it by hand") from err
        log.warning("%s; it is now called %s, and its graphs are counted anew", reason, aside.name)

    @contextmanager
    def _writable(self, num_missing: int) -> Iterator[None]:
        """Make the folder and hold a share of its lock; whoever holds it alone sweeps up what killed processes left."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            manifest = {"name": self.name, "num_shards": len(self), **json.loads(self.key)}
            if not (self.path / "manifest.json").is_file():
                write_json(self.path / "manifest.json", manifest)
            lock = (self.path / "writers.lock").open("a")
        except OSError as err:
            raise self._cannot_write(err, range(num_missing)) from err
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for leftover in self.path.glob(".shard-*.tmp"):
                    leftover.unlink(missing_ok=True)
                fcntl.flock(lock, fcntl.LOCK_SH)
            except OSError as err:  # others are writing, or this file system has no locks
                log.debug("%s: left as it is (%s)", self.path, err)
                _share(lock)
            yield

    def _cannot_write(
        self, err: OSError, pending: Sequence[int], num_bytes: int = 0, number: int | None = None
    ) -> StoreError:
        missing = f"{len(pending)} of {len(self)} shards are missing"
        if err.errno in (errno.ENOSPC, errno.EDQUOT) and number is not None:
            share = self.num_graphs(pending) / self.num_graphs([number])
            free = shutil.disk_usage(self.path).free
            return StoreError(
                f"{self.path}: no space left on the disk; {missing} and need about {as_size(num_bytes * share)}, "
                f"{as_size(free)} are free. Make room or set store.dir to a folder on another disk, and run the same "
                "command again; finished shards are kept and can be moved there"
            )
        return StoreError(
            f"{self.path} cannot be written ({err.strerror}), and {missing}. Set store.dir to a folder that can be "
            "written, let someone who may write there run python scripts/encode.py --cfg FILE, or do without: "
            "store.mode=never"
        )


def pack_graph(counts_PK: np.ndarray, num_nodes: int, graph: int) -> PackedCounts:
    """Pack the [n * n, K] counts of a graph. Raises DataError, naming it, for counts that are none."""
    try:
        return pack_counts(counts_PK, num_nodes)
    except ValueError as err:
        raise DataError(f"graph {graph}: its counts cannot be stored, {err}") from err


def may_hold(root: Path, graphs: GraphArrays, request: CountRequest) -> bool:
    """Whether a folder under `root` could be that of these graphs, from its manifest alone, which is quick to see."""
    wanted = json.loads(json.dumps({"num_graphs": len(graphs.node_ptr) - 1, **request.key()}))
    for path in root.glob("*/manifest.json"):
        try:
            manifest = json.loads(path.read_text())
        except (OSError, ValueError):
            return True  # looked at more closely by whoever opens it
        if all(manifest.get(key) == value for key, value in wanted.items()):
            return True
    return False


def fingerprint(graphs: GraphArrays) -> str:
    """Return a SHA-256 over the graphs alone, so that data sets that differ in features or targets share counts."""
    digest = hashlib.sha256()
    for row in (graphs.node_ptr, graphs.edge_ptr, *graphs.edge_index):
        for first in range(0, len(row), _HASHED_AT_ONCE):
            digest.update(np.ascontiguousarray(row[first : first + _HASHED_AT_ONCE], dtype="<i8").tobytes())
    return digest.hexdigest()


def _as_file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._+" else "-" for c in name).lstrip(".") or "graphs"


def _share(lock: Any) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as err:
        log.debug("%s: no share of the lock (%s)", lock.name, err)
