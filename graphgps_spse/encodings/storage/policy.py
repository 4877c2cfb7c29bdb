"""Which place the encoding of a split gets: the same on every machine, as it follows from sizes and counted work."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from graphgps_spse.counting.parallel import Progress
from graphgps_spse.encodings.base import Encoding, num_rows
from graphgps_spse.encodings.path_counts import CountRequest, PathCountEncoding
from graphgps_spse.encodings.storage.count_store import CountStore, may_hold
from graphgps_spse.encodings.storage.in_memory import InMemory
from graphgps_spse.encodings.storage.on_disk import OnDisk
from graphgps_spse.encodings.storage.on_the_fly import OnTheFly
from graphgps_spse.encodings.storage.split import Split
from graphgps_spse.errors import ConfigError
from graphgps_spse.human_readable import as_duration, as_size
from graphgps_spse.options import Options, option

MEMORY, STORE, ON_THE_FLY = "memory", "store", "on the fly"

_CHEAP_WORK = 4  # for each count: some times what it takes to read one; molecules take about 1, SBM graphs hundreds


class StoreOptions(Options, section="store"):
    """Path counts kept on disk, f being applied when they are read; scripts/encode.py fills the store."""

    mode: str = option(
        "auto", "auto: read what is there, keep what is costly; always; never", choices=("auto", "always", "never")
    )
    dir: str = option("datasets/encodings", "folder of the counts")
    min_seconds: float = option(20.0, "auto: keep the counts of splits that take one core longer than this", at_least=0)
    min_gib: float = option(
        4.0, "auto: and of those whose arrays would take more memory than this; cheap ones: on the fly", at_least=0
    )


class OnTheFlyOptions(Options, section="dataset"):
    """GRIT's switch."""

    pe_transform_on_the_fly: bool = option(False, "True: encode as batches are built; False: where encodings are large")


class Place(NamedTuple):
    """Where the encoding of a split is to be, and why, for people."""

    where: str
    """MEMORY, STORE or ON_THE_FLY."""
    reason: str


@dataclass(frozen=True)
class StoragePolicy:
    """What decides on the place of encodings."""

    options: StoreOptions
    only: str = ""
    """The place of every encoding, whatever its size."""
    reason: str = ""
    """Why, for people."""

    @classmethod
    def from_cfg(cls, cfg: Any) -> "StoragePolicy":
        """Read `store` and `dataset.pe_transform_on_the_fly`."""
        options = StoreOptions.from_cfg(cfg)
        if not options.dir:
            raise ConfigError("store.dir: is empty; name a folder, or set store.mode to never")
        if not OnTheFlyOptions.from_cfg(cfg).pe_transform_on_the_fly:
            return cls(options)
        if options.mode == "always":
            raise ConfigError("store.mode: is always, but dataset.pe_transform_on_the_fly keeps nothing; choose one")
        return cls(options, ON_THE_FLY, "dataset.pe_transform_on_the_fly")

    @property
    def folder(self) -> Path:
        """Folder of the counts."""
        return Path(self.options.dir)

    def without_store(self) -> "StoragePolicy":
        """Return the policy that reads and writes no store."""
        return replace(self, options=replace(self.options, mode="never"))

    def place(self, encoding: Encoding, split: Split) -> Place:
        """Choose between memory, the store and computing on the fly.

        Large arrays are computed on the fly. Path counts that are in the store are read from it; those that cost much
        more than reading them are kept there where they are large, or slow. What counting costs is predicted from a
        sample.
        """
        if self.only:
            return Place(self.only, self.reason)
        num_bytes = split.num_bytes(encoding)
        size, is_large = as_size(num_bytes), num_bytes > self.options.min_gib * (1 << 30)
        request = encoding.request if isinstance(encoding, PathCountEncoding) else None
        if not isinstance(encoding, PathCountEncoding) or request is None or self.options.mode == "never":
            return (
                Place(ON_THE_FLY, f"{size} of arrays, above store.min_gib")
                if is_large
                else Place(MEMORY, f"{size} of arrays")
            )
        if self.options.mode == "always":
            return Place(STORE, "store.mode is always")
        kept = self._find_store(split, request)
        if kept is not None:
            return Place(STORE, f"{kept.path} is there")
        cost, num_counts = encoding.estimate(split.graphs), num_rows(split.graphs)[0] * request.max_length
        counting = f"counting them all takes one core {as_duration(cost.seconds())}"
        if is_large and not cost.at_least and cost.work <= _CHEAP_WORK * num_counts:
            return Place(ON_THE_FLY, f"{size} of arrays, above store.min_gib, and {counting}")
        if is_large:
            return Place(STORE, f"{size} of arrays, above store.min_gib, and counting is costly")
        if cost.seconds() > self.options.min_seconds:
            return Place(STORE, f"counting takes one core {as_duration(cost.seconds())}, above store.min_seconds")
        return Place(MEMORY, f"{size} of arrays; counting takes one core {as_duration(cost.seconds())}")

    def store_of(self, encoding: Encoding, split: Split) -> CountStore | None:
        """Return the store of the path counts of a split, filled or not; None for an encoding without any."""
        request = encoding.request if isinstance(encoding, PathCountEncoding) else None
        return None if request is None else CountStore(self.folder, split.name, split.graphs, request)

    def _find_store(self, split: Split, request: CountRequest) -> CountStore | None:
        if not may_hold(self.folder, split.graphs, request):
            return None
        kept = CountStore(self.folder, split.name, split.graphs, request)
        return kept if kept.find_files() else None


def encode_split(
    encoding: Encoding,
    split: Split,
    place: Place,
    policy: StoragePolicy,
    *,
    num_threads: int = 1,
    progress: Progress | None = None,
) -> InMemory | OnDisk | OnTheFly:
    """Encode a split in its place: at once, but for what is computed on the fly."""
    if place.where == ON_THE_FLY:
        return OnTheFly.encode(encoding, split)
    if place.where == STORE and isinstance(encoding, PathCountEncoding):
        store = policy.store_of(encoding, split)
        if store is not None:
            return OnDisk.encode(encoding, split, store, num_threads=num_threads, progress=progress)
    return InMemory.encode(encoding, split, num_threads=num_threads, progress=progress)
