"""Loaders whose order is a function of (seed, epoch): a run resumes at any batch, with any number of workers."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from graphgps_spse.data.base import GraphBatch, GraphDataset
from graphgps_spse.errors import ConfigError, SPSEError
from graphgps_spse.seeding import derive_seed, seed_worker


class BatchOrder:
    """The batches of one epoch as lists of graph numbers, shuffled anew each epoch where `shuffle`."""

    def __init__(self, num_graphs: int, batch_size: int, seed: int, shuffle: bool) -> None:
        self.num_graphs, self.batch_size, self.seed, self.shuffle = num_graphs, batch_size, seed, shuffle
        self.epoch, self.start = 0, 0

    def __len__(self) -> int:
        return -(-self.num_graphs // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.num_graphs)
        if self.shuffle:
            generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", self.epoch))
            order = torch.randperm(self.num_graphs, generator=generator)
        for batch in order.split(self.batch_size)[self.start :]:
            yield batch.tolist()


class BatchView(Dataset):
    """A split as torch's DataLoader wants it: a list of graph numbers in, one GraphBatch out."""

    def __init__(self, graphs: GraphDataset, part: int = 0, num_parts: int = 1) -> None:
        self.graphs, self.part, self.num_parts = graphs, part, num_parts

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitems__(self, indices: list[int]) -> GraphBatch | SPSEError | None:
        """Return the batch of this part of the graphs `indices`, None for no graphs; flat arrays make it a few slices.

        An error that is for people is returned, not raised, as torch would wrap a worker's in a traceback.
        """
        share = indices[self.part :: self.num_parts]
        try:
            return self.graphs.batch(share) if share else None
        except SPSEError as err:
            return err


class GraphLoader:
    """Batches of one split. The last batch of an epoch may be smaller; none is dropped.

    Of `num_parts` loaders of one seed, each gives its own `part` (from 0) of the same batches.
    """

    def __init__(
        self,
        graphs: GraphDataset,
        *,
        batch_size: int,
        seed: int,
        shuffle: bool,
        num_workers: int = 0,
        pin_memory: bool = False,
        part: int = 0,
        num_parts: int = 1,
    ) -> None:
        self.num_graphs, self.batch_size = len(graphs), batch_size
        self._order = BatchOrder(len(graphs), batch_size, seed, shuffle)
        self._loader = DataLoader(
            BatchView(graphs, part, num_parts),
            batch_sampler=self._order,
            collate_fn=_as_it_is,
            num_workers=num_workers,
            worker_init_fn=seed_worker,
            # Own generator: by default torch draws the workers' base seed from the global one, which dropout reads.
            generator=torch.Generator().manual_seed(derive_seed(seed, "workers")),
            persistent_workers=num_workers > 0,
            pin_memory=pin_memory,
        )

    def __len__(self) -> int:
        return len(self._order)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[GraphBatch | None]:
        """Yield the batches of an epoch from number `start` on, None for an empty part.

        Raises DataError where a batch cannot be built, in whichever process that was.
        """
        self._order.epoch, self._order.start = epoch, start
        return map(_sound, self._loader)

    def numbers(self, epoch: int) -> Iterator[list[int]]:
        """Yield the numbers of the graphs of each batch of an epoch; no batch is built."""
        order = copy(self._order)
        order.epoch, order.start = epoch, 0
        return iter(order)


def _sound(batch: GraphBatch | SPSEError | None) -> GraphBatch | None:
    if isinstance(batch, SPSEError):
        raise batch
    return batch


def _as_it_is(batch: Any) -> Any:
    return batch


@dataclass(frozen=True)
class LoaderOptions:
    """How the loaders of a run are built."""

    batch_size: int
    seed: int
    num_workers: int = 0

    @classmethod
    def from_cfg(cls, cfg: Any) -> "LoaderOptions":
        """Read `train.batch_size`, `num_workers` and the run's seed."""
        if cfg.train.batch_size < 1:
            raise ConfigError(f"train.batch_size: {cfg.train.batch_size} is below 1")
        if cfg.num_workers < 0:
            raise ConfigError(f"num_workers: {cfg.num_workers} is below 0")
        return cls(batch_size=cfg.train.batch_size, seed=cfg.seed, num_workers=cfg.num_workers)

    def loaders(
        self, splits: dict[str, GraphDataset], *, pin_memory: bool = False, part: int = 0, num_parts: int = 1
    ) -> dict[str, GraphLoader]:
        """Return one loader for each split, or for a part of each of its batches; only "train" is shuffled."""
        return {
            split: GraphLoader(
                graphs,
                batch_size=self.batch_size,
                seed=derive_seed(self.seed, "loader", split),
                shuffle=split == "train",
                num_workers=self.num_workers,
                pin_memory=pin_memory,
                part=part,
                num_parts=num_parts,
            )
            for split, graphs in splits.items()
        }
