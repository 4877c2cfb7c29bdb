"""What an encoding is: options read once from the config, and arrays computed for a whole split at a time."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

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

    pair: np.ndarray | None = None
    """[P, dim_pair] float32; pair (i, j) of a graph of n nodes is row i*n + j of its block, i the receiver."""
    node: np.ndarray | None = None
    """[N, dim_node] float32."""
    record: dict[str, Any] = field(default_factory=dict)
    """What a result must say of it (method, exact or estimated, work done): plain types, kept in result.json."""


class Encoding(ABC):
    """One encoding with its options. Subclasses register under the name that YAML uses after `posenc_`."""

    name: ClassVar[str]
    dim_pair: int
    """Channels of each pair; 0 where it has none."""
    dim_node: int
    """Channels of each node; 0 where it has none."""

    @abstractmethod
    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph. Pure: equal input gives equal bits, whatever the number of threads."""
