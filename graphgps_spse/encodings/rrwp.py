"""Relative random walk probabilities, the encoding of GRIT (Ma et al. 2023): [I, P, P^2, ..] of all pairs."""

from typing import Any, ClassVar, Self

from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, Progress
from graphgps_spse.encodings.walks import SCRATCH_BYTES_OF_PAIR, walk_probabilities
from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import encodings


@encodings.register("RRWP")
class RRWP(Encoding):
    """Random walk probabilities of all pairs and return probabilities of nodes, up to P^(num_channels - 1)."""

    name: ClassVar[str] = "RRWP"
    size_key: ClassVar[str] = "posenc_RRWP.ksteps"
    has_identity: ClassVar[bool] = True

    def __init__(self, *, num_channels: int) -> None:
        """`num_channels` counts the identity, P^0. Raises ConfigError below 1."""
        if num_channels < 1:
            raise ConfigError(f"posenc_RRWP.ksteps: needs at least 1 channel, the identity; got {num_channels}")
        self.dim_pair = self.dim_node = num_channels

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_RRWP."""
        return cls(num_channels=cfg.posenc_RRWP.ksteps)

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes for one graph: the rows, and two dense matrices."""
        return super().bytes_of_graph(num_nodes) + SCRATCH_BYTES_OF_PAIR * num_nodes**2

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph: pair (i, j) gets P^k[i, j], the walks from the receiver i to j; node i gets P^k[i, i]."""
        pair, node = walk_probabilities(graphs, self.dim_pair, pairs=True, num_threads=num_threads, progress=progress)
        return EncodingArrays(pair, node, {"encoding": self.name, "channels": self.dim_pair})
