"""Reader of the path counts of a split from the shards of a store."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graphgps_spse.encodings.scaling import TABLE_SIZE, Scaling
from graphgps_spse.encodings.storage.packing import PackedCounts, unpack_into
from graphgps_spse.encodings.storage.shards import DamagedShardError, Shard, shard_path
from graphgps_spse.errors import StoreError

_MAX_OPEN_FILES = 200
"""Number of shards up to which files stay open. Processes are often limited to 1,024 open files."""


class StoredCounts:
    """Path counts of all graphs of a split. It can be pickled, as the path of the store, and used after a fork."""

    def __init__(self, path: Path, key: str, firsts: list[int], sizes: np.ndarray, num_lengths: int) -> None:
        """`firsts` holds the first graph of each shard, `sizes`, [G], the nodes of each graph; `num_lengths` is K."""
        self.path, self.sizes, self.num_lengths = path, sizes, num_lengths
        self._key, self._firsts = key, firsts
        self._open: dict[int, Shard] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}

    def read(self, graph: int) -> PackedCounts:
        """Return the packed counts of one graph. Raises StoreError if its file is missing or damaged."""
        shard = self._shard(bisect_right(self._firsts, graph) - 1)
        try:
            return shard.read(graph)
        except DamagedShardError as err:
            raise StoreError(f"{err}. Run the same command again to replace the damaged shard") from err

    def counts(self, graph: int) -> np.ndarray:
        """Return the counts of one graph, [n * n, K] float64."""
        packed = self.read(graph)
        counts = np.empty((packed.num_nodes**2, len(packed.kind_K)))
        unpack_into(packed, np.arange(TABLE_SIZE, dtype=np.float64), Scaling(1.0, 0.0, 0), False, counts)
        return counts

    def status_GK(self) -> np.ndarray:
        """Return the status of each graph and length, [G, K] int8."""
        return np.concatenate([shard.status_GK for shard in self._shards()])

    def work(self) -> int:
        """Return the cost of counting, in units of about a nanosecond."""
        return sum(shard.work for shard in self._shards())

    def max_error(self) -> float:
        """Return a bound on the error of ln(1 + S); 0 if all counts are stored without loss."""
        return max((shard.largest_step for shard in self._shards()), default=0.0) / 2

    def _shards(self) -> Iterator[Shard]:
        return (self._shard(number) for number in range(len(self._firsts)))

    def _shard(self, number: int) -> Shard:
        if number not in self._open:
            ends = [*self._firsts, len(self.sizes)]
            first, last = ends[number], ends[number + 1]
            path = shard_path(self.path, number, len(self._firsts))
            try:
                self._open[number] = Shard(
                    path,
                    self._key,
                    first,
                    self.sizes[first:last],
                    self.num_lengths,
                    stay_open=len(ends) <= _MAX_OPEN_FILES,
                )
            except (FileNotFoundError, PermissionError, DamagedShardError) as err:
                raise StoreError(
                    f"{path} cannot be read ({err}). Run the same command again, or python scripts/encode.py --cfg "
                    "FILE, to count what is missing"
                ) from err
        return self._open[number]
