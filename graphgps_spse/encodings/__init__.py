"""Encodings: one file for each, with its options and its computation in flat numpy arrays."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphgps_spse.encodings.base import Encoding


def build_encodings(cfg: Any) -> list["Encoding"]:
    """Return the encodings whose section `posenc_<name>` says `enable: True`, in the order of their names."""
    from graphgps_spse.registry import encodings

    sections = {name: getattr(cfg, f"posenc_{name}", None) for name in encodings.names()}
    return [encodings.get(name).from_cfg(cfg) for name, s in sections.items() if s is not None and s.enable]


def compile_kernels() -> float:
    """Compile the kernels of counting and encodings, or load them from disk; return the seconds it took."""
    import numpy as np

    from graphgps_spse.counting import compile_kernels as compile_counting
    from graphgps_spse.encodings.base import GraphArrays
    from graphgps_spse.encodings.spse import SPSE

    seconds = compile_counting()
    begin = time.perf_counter()
    path = GraphArrays(np.array([0, 3]), np.array([0, 4]), np.array([[0, 1, 1, 2], [1, 0, 2, 1]]))
    for node_pe in ("rwse", "cycles"):
        SPSE(max_length=2, node_pe=node_pe).compute(path)
    return seconds + time.perf_counter() - begin
