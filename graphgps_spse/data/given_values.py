"""Features and targets of graphs that a user gives, in tensors, arrays or lists."""

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.errors import DataError

log = logging.getLogger(__name__)


def as_numbers(what: str, values: Any) -> Tensor:
    """Return numbers as a dense tensor on the CPU. Numbers of Python become int64, float64 or bool.

    Raises DataError for texts, None, complex numbers and lists of different lengths. `what` names the values, for
    example "graph 3: x".
    """
    try:
        is_tensor = isinstance(values, Tensor)
        found = values.detach().cpu().to_dense() if is_tensor else torch.from_numpy(np.array(values, order="C"))
    except (TypeError, ValueError, RuntimeError) as err:
        raise DataError(f"{what} is {describe_values(values)}, not an array of numbers") from err
    if found.is_complex():
        raise DataError(f"{what} holds complex numbers; store the real and the imaginary part as two columns")
    return found


def describe_values(values: Any) -> str:
    """Return the shape of a tensor, and the first characters of anything else."""
    return str(list(values.shape)) if isinstance(values, Tensor) else repr(values)[:60]


def find_edges(data: Any) -> Tensor:
    """Return the edges of a PyG graph, [2, E] int64. Raises DataError for anything else."""
    edges = getattr(data, "edge_index", None)
    if not isinstance(edges, Tensor):
        raise DataError(f"{type(data).__name__} has no edge_index tensor [2, E]")
    shape, kind = list(edges.shape), edges.dtype
    is_whole = not (kind.is_floating_point or kind.is_complex or kind is torch.bool) or not edges.numel()
    if len(shape) != 2 or shape[0] != 2 or not is_whole:
        raise DataError(f"edge_index is {shape} of {kind}; it must be [2, E] integers")
    return edges.cpu().to(torch.int64)


def warn_of_weights(name: str, graphs: Iterable[Any]) -> None:
    """Log a warning if PyG graphs have `edge_weight`, which is not read."""
    if any(getattr(data, "edge_weight", None) is not None for data in graphs):
        log.warning(
            "%s: edge_weight is not read, so all edges count alike. For walks with weights, put the weights into a "
            "column of edge_attr, and set the option weight_column of the encoding",
            name,
        )


def count_nodes(data: Any) -> int:
    """Return the number of nodes of a PyG graph; 0 for other objects, and if its features are a single number."""
    try:
        return int(getattr(data, "num_nodes", 0) or 0)
    except IndexError:  # PyG counts the rows of features
        return 0
