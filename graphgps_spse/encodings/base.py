"""What an encoding is: options read once from the config, and arrays computed for a whole split at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from graphgps_spse.counting.graph import pair_offsets
from graphgps_spse.encodings.units import as_size

if TYPE_CHECKING:
    from graphgps_spse.encodings.store import CountStore, StoreOptions
    from graphgps_spse.encodings.stored import StoredPairs

Progress = Callable[[int], None]
"""Called from time to time with the number of graphs finished since the last call."""


class GraphArrays(NamedTuple):
    """Graphs in flat arrays: graph g owns edges edge_ptr[g]:edge_ptr[g+1], whose node numbers count within it."""

    node_ptr: np.ndarray
    """[G + 1] int64."""
    edge_ptr: np.ndarray
    """[G + 1] int64."""
    edge_index: np.ndarray
    """[2, E] int64, row 0 sender, row 1 receiver."""


@dataclass(frozen=True)
class EncodingArrays:
    """An encoding of every graph of a split."""

    pair: "np.ndarray | StoredPairs | None" = None
    """[P, dim_pair] float32; pair (i, j) of a graph of n nodes is row i*n + j of its block, i the receiver.

    Or an object that makes the rows of chosen graphs when a batch asks for them.
    """
    node: np.ndarray | None = None
    """[N, dim_node] float32."""
    record: dict[str, Any] = field(default_factory=dict)
    """What a result must say of it (method, exact or estimated, work done): plain types, kept in result.json."""


class Place(NamedTuple):
    """Where the encoding of a split is to be, and why, for people."""

    where: str
    """MEMORY, STORE or ON_THE_FLY."""
    reason: str


MEMORY, STORE, ON_THE_FLY = "memory", "store", "on the fly"


class Encoding(ABC):
    """One encoding with its options. Subclasses register under the name that YAML uses after `posenc_`."""

    name: ClassVar[str]
    has_identity: ClassVar[bool] = False
    """Whether channel 0 of pairs is the identity: 1 for pairs (i, i) and 0 for all others."""
    size_key: ClassVar[str] = ""
    """The key to lower where an encoding takes too much memory; empty where no key helps."""
    dim_pair: int
    """Channels of each pair; 0 where it has none."""
    dim_node: int
    """Channels of each node; 0 where it has none."""

    @abstractmethod
    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph. Pure: equal input gives equal bits, whatever the number of threads."""

    def place(self, graphs: GraphArrays, *, name: str, store: "StoreOptions") -> Place:
        """Choose where the encoding of the split `name` is to be: the same on every machine.

        Here: in memory, or computed as batches are built where its arrays would take more than `store.min_gib`.
        """
        gib = self.gib(graphs)
        if gib > store.min_gib:
            return Place(ON_THE_FLY, f"{as_size(gib * 2**30)} of arrays, above store.min_gib")
        return Place(MEMORY, f"{as_size(gib * 2**30)} of arrays")

    def gib(self, graphs: GraphArrays) -> float:
        """GiB that the arrays of a split take in memory."""
        pairs, nodes = int(pair_offsets(graphs.node_ptr)[-1]), int(graphs.node_ptr[-1])
        return (pairs * self.dim_pair + nodes * self.dim_node) * 4 / (1 << 30)

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes that `compute` takes for one graph: the float32 rows, and what scratch memory a child adds."""
        return 4 * (num_nodes**2 * self.dim_pair + num_nodes * self.dim_node)

    def provide(
        self,
        graphs: GraphArrays,
        *,
        name: str,
        place: Place,
        store: "StoreOptions",
        num_threads: int = 1,
        progress: Progress | None = None,
    ) -> EncodingArrays:
        """Encode the split `name` for a run, in memory or, where `place` says so, by way of the store."""
        return self.compute(graphs, num_threads=num_threads, progress=progress)

    def sample(self, graphs: GraphArrays) -> list[int]:
        """Return the graphs from which the record of an encoding is made that is computed on the fly."""
        return [0]

    def store_of(self, graphs: GraphArrays, *, name: str, root: Path) -> "CountStore | None":
        """Return what `provide` keeps of the split `name` under `root`, filled or not; None if it keeps nothing."""
        return None
