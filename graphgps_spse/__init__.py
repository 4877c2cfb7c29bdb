"""Simple path structural encoding for graph transformers: counting engine, models and experiments.

The public API is imported when first used, so that the package itself loads in no time and counting needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphgps_spse.version import __version__

if TYPE_CHECKING:
    from graphgps_spse.counting import PathCounts, count_simple_paths
    from graphgps_spse.counting.edge_cycles import count_cycles_per_edge
    from graphgps_spse.encodings.transform import SimplePathEncoding

__all__ = ["PathCounts", "SimplePathEncoding", "__version__", "count_cycles_per_edge", "count_simple_paths"]

_HOMES = {
    "PathCounts": "graphgps_spse.counting",
    "SimplePathEncoding": "graphgps_spse.encodings.transform",
    "count_cycles_per_edge": "graphgps_spse.counting.edge_cycles",
    "count_simple_paths": "graphgps_spse.counting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphgps_spse' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
