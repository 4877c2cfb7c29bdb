"""Random walk structural encoding (Dwivedi et al. 2022): the probability of being back, or at j, after k steps."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, Progress
from graphgps_spse.encodings.walks import SCRATCH_BYTES_OF_PAIR, walk_probabilities
from graphgps_spse.errors import ConfigError, show
from graphgps_spse.registry import encodings

_RANGE = r"range\(\s*(\d+)\s*(?:,\s*(\d+)\s*(?:,\s*(\d+)\s*)?)?,?\s*\)"
_MAX_TIME = 10_000


@encodings.register("RWSE")
class RWSE(Encoding):
    """Return probabilities of nodes, diag(P^k) for each k of `times`; for pairs, on request, P^k."""

    name: ClassVar[str] = "RWSE"

    def __init__(self, *, times: Sequence[int], pairs: bool = False) -> None:
        """`times` are the k in steps, 1 or more each; ConfigError otherwise. `pairs`: whether pairs get P^k."""
        self.times = tuple(times)
        bad = [k for k in self.times if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= _MAX_TIME]
        if bad or not self.times:
            raise ConfigError(
                f"posenc_RWSE.kernel: times must be whole numbers from 1 to {_MAX_TIME}, e.g. times_func: range(1,21); "
                f"got {bad[0] if bad else 'none'}"
            )
        if not isinstance(pairs, bool):
            raise ConfigError(f"posenc_RWSE.enable_edges: must be True or False, got {pairs!r}")
        self.dim_pair, self.dim_node = len(self.times) * pairs, len(self.times)

    @classmethod
    def from_cfg(cls, cfg: Any) -> Self:
        """Read cfg.posenc_RWSE: `enable_edges`, and of `kernel` `times_func` if it is set, else `times`."""
        kernel = cfg.posenc_RWSE.kernel
        times = parse_times(kernel.times_func) if kernel.times_func else list(kernel.times)
        return cls(times=times, pairs=cfg.posenc_RWSE.enable_edges)

    def bytes_of_graph(self, num_nodes: int) -> int:
        """Least bytes for one graph: the rows, and two dense matrices, also where nodes alone are encoded."""
        return super().bytes_of_graph(num_nodes) + SCRATCH_BYTES_OF_PAIR * num_nodes**2

    def compute(self, graphs: GraphArrays, *, num_threads: int = 1, progress: Progress | None = None) -> EncodingArrays:
        """Encode every graph: nodes get [N, len(times)] float32; pair (i, j), if wanted, P^k[i, j], from i to j."""
        pair, node = walk_probabilities(
            graphs, max(self.times) + 1, pairs=self.dim_pair > 0, num_threads=num_threads, progress=progress
        )
        return EncodingArrays(
            pair=None if pair is None else np.ascontiguousarray(pair[:, self.times]),
            node=np.ascontiguousarray(node[:, self.times]),
            record={"encoding": self.name, "times": list(self.times), "pairs": self.dim_pair > 0},
        )


def parse_times(text: str) -> range:
    """Return the range that a text such as "range(1,21)" spells. Raises ConfigError for any other text."""
    match = re.fullmatch(_RANGE, text.strip())
    numbers = [int(number) for number in match.groups() if number] if match else []
    if not numbers or 0 in numbers[2:]:
        raise ConfigError(
            f"posenc_RWSE.kernel.times_func: expected range(START,STOP), such as range(1,21); got '{text}'"
        )
    times = range(*numbers)
    if times and times[-1] > _MAX_TIME:
        raise ConfigError(f"posenc_RWSE.kernel.times_func: {show(text)} goes beyond {_MAX_TIME:,} steps, the limit")
    return times
