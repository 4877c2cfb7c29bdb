"""Features and targets of graphs that a user gives, in tensors, arrays or lists."""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.data.molecules import NUM_ATOM_COLUMNS, read_mol
from graphgps_spse.errors import DataError, MissingLibraryError
from graphgps_spse.extras import require

log = logging.getLogger(__name__)

_COMPARED = 10  # molecules of PyG, which have one origin


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


def find_codes_of_pyg(graphs: Iterable[Any]) -> str:
    """Return which PyG graph has the features of PyG's `from_smiles`, and what to do; empty if none is known to.

    They have as many columns as OGB's, and other codes. The first ten graphs with features and the attribute `smiles`
    are compared with their SMILES, if RDKit is installed.
    """
    molecules = (given for given in enumerate(graphs) if _may_be_molecule(given[1]))
    for number, data in islice(molecules, _COMPARED):
        try:
            require("rdkit")
            elements = _elements_of(data.smiles)
        except (DataError, MissingLibraryError):
            continue
        if data.x[:, 0].tolist() == elements:
            return (
                f"graph {number} has the features of PyTorch Geometric's from_smiles, whose codes are not those of OGB "
                "(carbon is 6 instead of 5); make the graphs with graphgps_spse.from_smiles instead"
            )
    return ""


def _may_be_molecule(data: Any) -> bool:
    """Return whether a PyG graph has a SMILES and columns of integers that may be OGB's features of atoms."""
    x = getattr(data, "x", None)
    is_table = isinstance(x, Tensor) and x.dim() == 2 and x.shape[1] == NUM_ATOM_COLUMNS and not x.is_floating_point()
    return is_table and isinstance(getattr(data, "smiles", None), str)


def _elements_of(smiles: str) -> list[int]:
    """Return the atomic numbers of a SMILES. Raises DataError if it is not a molecule."""
    from rdkit import rdBase

    with rdBase.BlockLogs():
        return [atom.GetAtomicNum() for atom in read_mol(smiles).GetAtoms()]
