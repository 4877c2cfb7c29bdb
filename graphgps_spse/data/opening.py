"""Loading the splits of a data set, with errors for unreadable files and for splits without targets."""

from typing import Any

import torch

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import DataError


def load_splits(dataset: Any) -> dict[str, GraphDataset]:
    """Return the splits of a data set. Raises DataError if files are missing, damaged or cannot be read."""
    try:
        splits: dict[str, GraphDataset] = dataset.load()
    except OSError as err:
        raise DataError(
            f"{dataset.spec.name}: {err.filename or 'a file'} cannot be read ({err.strerror or err}). Check the path "
            "and its permissions, or set dataset.dir (or the key of this data set) to another folder"
        ) from err
    for graphs in splits.values():
        check_classes(graphs, dataset.spec.num_classes)
    return splits


def check_classes(graphs: GraphDataset, num_classes: int) -> None:
    """Raise DataError, naming the graph, for a target outside 0 to num_classes - 1; NaN is an unknown target."""
    wrong = ((graphs.y < 0) | (graphs.y >= num_classes)).any(1) if num_classes else None
    if wrong is not None and bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        graph = int(torch.searchsorted(graphs.node_ptr, row, right=True)) - 1 if graphs.level == "node" else row
        raise DataError(
            f"{graphs.source or graphs.name}, {graphs.split} split, graph {graph}: the target {graphs.y[row].tolist()} "
            f"is outside the classes 0 to {num_classes - 1} of this data set (num_classes {num_classes})"
        )


def require_targets(splits: dict[str, GraphDataset]) -> None:
    """Raise DataError if all targets of a split are unknown (NaN)."""
    for split, graphs in splits.items():
        if graphs.may_miss_targets and bool(graphs.y.isnan().all()):
            raise DataError(
                f"{graphs.source or graphs.name}, {split} split: all targets are unknown (NaN), so metrics are not "
                "defined; add targets"
            )
