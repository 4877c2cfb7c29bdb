"""Loading the splits of a data set, with errors for unreadable files and for splits without targets."""

from typing import Any

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import DataError


def load_splits(dataset: Any) -> dict[str, GraphDataset]:
    """Return the splits of a data set. Raises DataError if files are missing, damaged or cannot be read."""
    try:
        return dataset.load()
    except OSError as err:
        raise DataError(
            f"{dataset.spec.name}: {err.filename or 'a file'} cannot be read ({err.strerror or err}). Check the path "
            "and its permissions, or set dataset.dir (or the key of this data set) to another folder"
        ) from err


def require_targets(splits: dict[str, GraphDataset]) -> None:
    """Raise DataError if all targets of a split are unknown (NaN)."""
    for split, graphs in splits.items():
        if graphs.may_miss_targets and bool(graphs.y.isnan().all()):
            raise DataError(
                f"{graphs.name}, {split} split: all targets are unknown (NaN), so metrics are not defined; add targets "
                "or remove the split"
            )
