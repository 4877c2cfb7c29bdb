"""Opening a data set, with words for a disk that refuses and for splits that nothing can be learned from."""

from typing import Any

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import DataError


def load_splits(dataset: Any) -> dict[str, GraphDataset]:
    """Return the splits of a data set. Raises DataError where files are missing, damaged or cannot be read."""
    try:
        return dataset.load()
    except OSError as err:
        raise DataError(
            f"{dataset.spec.name}: {err.filename or 'a file'} cannot be read ({err.strerror or err}). Check the path "
            "and its permissions, or name another, with dataset.dir or the key of this data set"
        ) from err


def require_targets(splits: dict[str, GraphDataset]) -> None:
    """Raise DataError, naming the split, where no target is known, so that no metric is defined."""
    for split, graphs in splits.items():
        if graphs.may_miss_targets and bool(graphs.y.isnan().all()):
            raise DataError(
                f"{graphs.name}, {split} split: none of its targets is known, so nothing can be learned or measured"
            )
