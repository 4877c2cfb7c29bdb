"""Numbers of graphs that a user or a loader asks for."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphgps_spse.errors import DataError, show


def as_graph_numbers(indices: Sequence[int] | Any, num_graphs: int) -> np.ndarray:
    """Return numbers of graphs as [B] int64. It takes microseconds, as it is called for each batch.

    Raises DataError for a mask, for other values that are not whole, and for numbers that are not 0 .. num_graphs - 1.
    """
    numbers = np.asarray(indices)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
        hint = "; for a mask, pass numpy.flatnonzero(mask)" if numbers.dtype.kind == "b" else ""
        raise DataError(
            f"a batch takes a list of graph numbers, not {numbers.dtype} of shape {list(numbers.shape)} "
            f"({show(numbers.tolist())}){hint}"
        )
    if len(numbers) and not (0 <= numbers.min() and numbers.max() < num_graphs):
        wrong = numbers[(numbers < 0) | (numbers >= num_graphs)][0]
        raise DataError(f"there is no graph {wrong}: the graphs of this split have the numbers 0 to {num_graphs - 1}")
    return numbers.astype(np.int64, copy=False)
