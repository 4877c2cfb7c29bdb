"""From torch_geometric's data sets to flat arrays, and words for the moment when a download fails."""

import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import DataError

DAMAGED = (
    pickle.UnpicklingError,
    struct.error,
    EOFError,
    RuntimeError,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
)
"""What torch.load and PyG's classes raise for files that are cut off or hold something else."""


def load_pyg(
    build: Callable[[], InMemoryDataset],
    *,
    name: str,
    raw_dir: Path,
    raw_files: Sequence[str],
    url: str,
    archive: str = "",
):
    """Return `build()`, PyG's own class with its own download; DataError says what was tried and what to do by hand.

    PyG empties `raw_dir` before a download, so a folder that holds some of `raw_files` is refused, not handed over.
    `archive` is what the download is called where PyG takes a file of that name in `raw_dir` for it.
    """
    missing = [f for f in raw_files if not (raw_dir / f).is_file()]
    has_archive = bool(archive) and (raw_dir / archive).is_file()
    if missing and not has_archive and raw_dir.is_dir() and any(raw_dir.iterdir()):
        raise DataError(
            f"{name}: {raw_dir} lacks {', '.join(missing)}. Add what is missing, or move the folder away to download "
            f"it whole (torch_geometric would empty it first)."
        )
    try:
        return build()
    except (OSError, zipfile.BadZipFile) as err:
        if not missing:
            raise DataError(f"{name}: the files in {raw_dir.parent} cannot be read or processed: {err}") from err
        if has_archive or isinstance(err, zipfile.BadZipFile):
            raise DataError(
                f"{name}: {raw_dir / archive} cannot be unpacked ({err}); an interrupted download looks like this. "
                f"Move it away and fetch it again from {url}"
            ) from err
        by_hand = f"{', '.join(raw_files)}" + (f", or {archive}, which holds it" if archive else "")
        raise DataError(
            f"{name}: download failed ({err}). Tried {url}\nWithout a connection, put these files into {raw_dir} by "
            f"hand and run the same command again: {by_hand}"
        ) from err
    except DAMAGED as err:
        raise DataError(
            f"{name}: a file in {raw_dir} or the processed folder beside it is damaged ({type(err).__name__}: {err}). "
            f"Move the processed folder away to make it anew, or fetch the raw files again from {url}"
        ) from err


def flat_graphs(
    dataset: InMemoryDataset, *, name: str, split: str, level: str = "graph", with_positions: bool = False
) -> GraphDataset:
    """Return the graphs of an in-memory PyG data set, which already holds them end to end, as a GraphDataset.

    `with_positions` appends `pos` to x. Node numbers of edges are kept as narrow as the largest graph allows.
    """
    data, slices = dataset._data, dataset.slices
    largest = int(_offsets(slices["x"]).diff().max())
    x_NF = torch.cat([_columns(data.x), _columns(data.pos)], dim=1).float() if with_positions else _columns(data.x)
    return GraphDataset(
        name=name,
        split=split,
        level=level,
        x_NF=x_NF,
        edge_index_2E=_narrowed(data.edge_index, largest),
        edge_attr_EF=None if data.edge_attr is None else _columns(data.edge_attr),
        y=_columns(data.y),
        node_ptr=_offsets(slices["x"]),
        edge_ptr=_offsets(slices["edge_index"]),
    )


def compact_dtype(num_nodes: int) -> type[np.integer]:
    """Return the narrowest type that numbers the nodes of graphs of up to `num_nodes` nodes and fits torch."""
    return np.uint8 if num_nodes <= 256 else np.int16 if num_nodes <= 32768 else np.int64


def _narrowed(edges_2E: Tensor, num_nodes: int) -> Tensor:
    """Return edges in the compact type; numbers that point outside their graph are left, to be reported as they are."""
    if edges_2E.numel() and not 0 <= int(edges_2E.min()) <= int(edges_2E.max()) < num_nodes:
        return edges_2E
    return torch.from_numpy(edges_2E.numpy().astype(compact_dtype(num_nodes)))


def _columns(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def _offsets(slices: Tensor) -> Tensor:
    return torch.as_tensor(slices, dtype=torch.int64)
