"""What an encoding is: options, and arrays that are computed from some graphs. storage/ decides where they are kept."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from graphgps_spse.counting.graphs import pair_offsets
from graphgps_spse.options import Options, option


class GraphArrays(NamedTuple):
    """Graphs in flat arrays: graph g owns edges edge_ptr[g]:edge_ptr[g+1], whose node numbers count within it."""

    node_ptr: np.ndarray
    """[G + 1] int64."""
    edge_ptr: np.ndarray
    """[G + 1] int64."""
    edge_index: np.ndarray
    """[2, E] int64, row 0 source, row 1 target."""


class EncodingArrays(NamedTuple):
    """An encoding of some graphs."""

    pair: np.ndarray | None = None
    """[P, dim_pair] float32; pair (i, j) of a graph of n nodes is row i * n + j of its block."""
    node: np.ndarray | None = None
    """[N, dim_node] float32."""
    status_GK: np.ndarray | None = None
    """[G, K] int8 of encodings of path counts: positions in list(Status)."""
    work: int = 0
    """What counting paths cost, in units of about a nanosecond."""


class Cost(NamedTuple):
    """What encoding some graphs takes on one core."""

    work: float
    """In units of about a nanosecond."""
    at_least: bool = False
    """Whether it may be much more."""

    def seconds(self, num_threads: int = 1) -> float:
        """Predicted seconds on `num_threads` cores."""
        return self.work * 1e-9 / num_threads


class Switch(NamedTuple):
    """How a part of an encoding is switched off and on, as `key=value`."""

    off: str
    on: str


class NodeEncoderOptions(Options):
    """How `+NAME` in dataset.node_encoder_name gives the node part of an encoding to the model."""

    model: str = option("Linear", "module that maps the node part, in the list of components")
    dim_pe: int = option(16, "number of node feature columns that it produces", at_least=1, at_most=1 << 16)
    raw_norm_type: str = option("none", "normalisation of the raw values", choices=("none", "BatchNorm"))


class DeepSetOptions(NodeEncoderOptions):
    """The same for Laplacian eigenvectors."""

    model: str = option("DeepSet", "module that maps the node part: DeepSet sums an MLP over the eigenpairs")
    layers: int = option(2, "layers of the MLP", at_least=1, at_most=1_000)


class EncodingOptions(Options):
    """What every encoding has. Options of one with another node encoder, or of pairs alone, set `includes` anew."""

    includes: "ClassVar[tuple[type[Options], ...]]" = (NodeEncoderOptions,)
    enable: bool = option(False, "compute this encoding and give it to the model")


class Encoding(ABC):
    """One encoding with its options, registered under the NAME of its section `posenc_NAME`.

    A subclass sets `Options` and the widths, and computes. Its attributes that are plain types go into records of runs.
    """

    Options: ClassVar[type[EncodingOptions]]
    has_identity: ClassVar[bool] = False
    """Whether channel 0 of pairs is the identity: 1 for pairs (i, i) and 0 for all others."""
    size_key: ClassVar[str] = ""
    """The key to lower where an encoding takes too much memory; empty where no key helps."""
    node_values: ClassVar[str] = "numbers"
    """What nodes hold, which decides on the modules that can read it: "numbers", or "eigenpairs" as LapPE has them."""
    switches: ClassVar[Mapping[str, Switch]] = MappingProxyType({})
    """Parts, "pair" or "node", that can be switched off: one that is on and that nothing reads is an error."""
    dim_pair: int = 0
    """Channels of each pair; 0 where it has none."""
    dim_node: int = 0
    """Channels of each node; 0 where it has none."""

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @abstractmethod
    def compute(self, graphs: GraphArrays) -> EncodingArrays:
        """Encode some graphs. A graph's rows depend on it alone; several threads may compute at the same time.

        Raises DataError, whose message begins with "graph" and its number among these, for one that it cannot encode.
        """

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Return the encoding with these options by name, and the defaults of others."""
        return cls(cls.Options(**options))

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read the section of the encoding."""
        return cls(cls.Options.from_cfg(cfg))

    @property
    def name(self) -> str:
        """NAME of the section `posenc_NAME`."""
        return (self.Options.section or "").removeprefix("posenc_")

    @property
    def pair_categories(self) -> int:
        """Where pairs hold a category in place of numbers: how many there are, 0, 1, ..; -1 stands for none of them."""
        return 0

    @property
    def pairs_must_be_read(self) -> bool:
        """Whether nodes hold another encoding, so that a model which reads nodes alone does not read this one."""
        return False

    def record(self) -> dict[str, Any]:
        """Return what a result says of the options: plain types."""
        own = {key: value for key, value in vars(self).items() if not key.startswith("dim_")}
        return {"encoding": self.name, **own}

    def estimate(self, graphs: GraphArrays) -> Cost | None:
        """Return what encoding graphs costs, the same on every machine; None where it is not known beforehand."""
        return None

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes that `compute` takes for one graph: the float32 rows, and what scratch memory a child adds."""
        return 4 * (num_nodes**2 * self.dim_pair + num_nodes * self.dim_node)


def num_rows(graphs: GraphArrays) -> tuple[int, int]:
    """Return the numbers of pairs and of nodes."""
    return int(pair_offsets(graphs.node_ptr)[-1]), int(graphs.node_ptr[-1])


def cut(graphs: GraphArrays, first: int, last: int) -> GraphArrays:
    """Return graphs first..last-1 as arrays of their own, int64."""
    node_ptr, edge_ptr = graphs.node_ptr[first : last + 1], graphs.edge_ptr[first : last + 1]
    edges = graphs.edge_index[:, edge_ptr[0] : edge_ptr[-1]]
    return GraphArrays(node_ptr - node_ptr[0], edge_ptr - edge_ptr[0], np.ascontiguousarray(edges, np.int64))


def select(graphs: GraphArrays, numbers: Sequence[int]) -> GraphArrays:
    """Return some graphs of a split as arrays of their own, int64."""
    parts = [cut(graphs, number, number + 1) for number in numbers]
    return GraphArrays(
        node_ptr=np.cumsum([0, *(part.node_ptr[-1] for part in parts)]),
        edge_ptr=np.cumsum([0, *(part.edge_ptr[-1] for part in parts)]),
        edge_index=np.concatenate([np.empty((2, 0), np.int64), *(part.edge_index for part in parts)], axis=1),
    )


def sample_by_size(graphs: GraphArrays, most: int) -> list[int]:
    """Return up to `most` graphs at even ranks of the order by size, shuffled: the first few are spread as well."""
    sizes: np.ndarray = np.diff(graphs.node_ptr)
    number = min(most, len(sizes))
    ranks = ((np.arange(number) + 0.5) * len(sizes) / max(1, number)).astype(np.int64)
    return np.random.default_rng(0).permutation(np.argsort(sizes, kind="stable")[ranks]).tolist()
