"""Reading what a store holds: the pairs of a batch, decoded when the batch is made."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.encodings.packing import TABLE_SIZE, PackedCounts, unpack_into
from graphgps_spse.encodings.scaling import check_counts_fit, scale_table
from graphgps_spse.encodings.shards import DamagedShardError, Shard, shard_path
from graphgps_spse.errors import StoreError

_MOST_FILES = 200
"""Shards whose files stay open; a process may often have 1,024 open files."""


class StoredCounts:
    """The counts of all graphs of a split. It is passed to other processes as a path; a fork may read, too."""

    def __init__(self, path: Path, key: str, firsts: list[int], sizes: np.ndarray, num_lengths: int) -> None:
        """`firsts` are the first graphs of the shards, `sizes` [G] the nodes of all graphs, `num_lengths` K."""
        self.path, self.sizes, self.num_lengths = path, sizes, num_lengths
        self._key, self._firsts = key, firsts
        self._open: dict[int, Shard] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}

    def read(self, graph: int) -> PackedCounts:
        """Return the counts of one graph. Raises StoreError where its file is missing or damaged."""
        shard = self._shard(bisect_right(self._firsts, graph) - 1)
        try:
            return shard.read(graph)
        except DamagedShardError as err:
            raise StoreError(f"{err}. Run the same command again: it counts the damaged shard anew") from err

    def counts(self, graph: int) -> np.ndarray:
        """Return the counts of one graph, [n * n, K] float64."""
        packed = self.read(graph)
        counts = np.empty((packed.num_nodes**2, len(packed.kind_K)))
        unpack_into(packed, np.arange(TABLE_SIZE, dtype=np.float64), 1.0, 0.0, 0, False, counts)
        return counts

    def status_GK(self) -> np.ndarray:
        """Return the status of each graph and length, [G, K] int8."""
        return np.concatenate([shard.status_GK for shard in self._shards()])

    def work(self) -> int:
        """Return what counting them cost, in units of about a nanosecond."""
        return sum(shard.work for shard in self._shards())

    def max_error(self) -> float:
        """Return a bound of the error of ln(1 + S); 0 where every count is kept as it is."""
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
                    path, self._key, first, self.sizes[first:last], self.num_lengths, stay_open=len(ends) <= _MOST_FILES
                )
            except (FileNotFoundError, PermissionError, DamagedShardError) as err:
                raise StoreError(
                    f"{path} cannot be read ({err}). Run the same command again, or python scripts/encode.py --cfg "
                    "FILE: both count what is missing"
                ) from err
        return self._open[number]


class StoredPairs:
    """The pairs of a split, [P, C] float32, made from stored counts for the graphs that are asked for.

    Channels are those of SPSE: the identity, f of each length, and f(0) in what is left. f(x) = alpha * g^n(x) + beta
    with g(x) = ln(1 + x) is applied here, so other values of alpha, beta and n need no other store.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, counts: StoredCounts, *, alpha: float, beta: float, n: int, num_channels: int) -> None:
        self.counts, self.alpha, self.beta, self.n = counts, alpha, beta, n
        sizes = counts.sizes.astype(np.int64)
        self.shape = (int((sizes * sizes).sum()), num_channels)
        self._table: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None}

    def rows_of(self, graphs: Sequence[int]) -> Tensor:
        """Return the rows of some graphs, one after the other: [sum of n * n, C] float32."""
        if self._table is None:
            self._table = scale_table(self.alpha, self.beta, self.n, TABLE_SIZE)
        num_pairs = sum(int(self.counts.sizes[graph]) ** 2 for graph in graphs)
        rows, first = np.empty((num_pairs, self.shape[1]), np.float32), 0
        for graph in graphs:
            packed = self.counts.read(graph)
            block = rows[first : first + packed.num_nodes**2]
            unpack_into(packed, self._table, self.alpha, self.beta, self.n, True, block)
            first += len(block)
        check_counts_fit(rows, self.n, prefix="posenc_SPSE.")
        return torch.from_numpy(rows)
