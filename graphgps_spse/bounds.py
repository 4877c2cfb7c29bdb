"""The largest value that a key may have: what is beyond is a slip of the keyboard and would run for hours or crash."""

from collections.abc import Mapping
from typing import Any

from graphgps_spse.errors import ConfigError, show
from graphgps_spse.options import LARGEST_INT

_GRAPHS = 1_000_000_000

LARGEST = {
    "num_threads": 4_096,
    "num_workers": 1_024,
    "round": 17,
    "dataset.node_encoder_num_types": 1 << 31,
    "dataset.edge_encoder_num_types": 1 << 31,
    "dataset.cycles.num_graphs": _GRAPHS,
    "dataset.cycles.max_length": 10_000,
    "dataset.cycles.max_count": 1_000_000,
    "dataset.generated.num_graphs": _GRAPHS,
    "dataset.images.num_graphs": _GRAPHS,
    "train.batch_size": 1 << 31,
}
"""Largest value by key, of each item where the value is a list; of other keys it is LARGEST_INT.

The least is 0 for these keys, which count something, and -LARGEST_INT for others.
"""


def check_bounds(values: Mapping[str, Any]) -> None:
    """Raise ConfigError, beginning with the key, for a whole number beyond its bound; `values` by dotted key."""
    for key, value in values.items():
        least, most = (0, LARGEST[key]) if key in LARGEST else (-LARGEST_INT, LARGEST_INT)
        for number in value if isinstance(value, list) else [value]:
            if type(number) is int and not least <= number <= most:
                side, limit = ("below", least) if number < 0 else ("above", most)
                raise ConfigError(f"{key}: {show(number)} is {side} {limit:,}, the limit of this key")
