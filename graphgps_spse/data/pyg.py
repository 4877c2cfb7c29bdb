"""From torch_geometric's data sets to flat arrays, and words for the moment when a download fails."""

import pickle
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import DataError


def load_pyg(build: Callable[[], InMemoryDataset], *, name: str, raw_dir: Path, raw_files: Sequence[str], url: str):
    """Return `build()`, PyG's own class with its own download; DataError says what was tried and what to do by hand.

    PyG empties `raw_dir` before a download, so a folder that holds some of `raw_files` is refused, not handed over.
    """
    missing = [f for f in raw_files if not (raw_dir / f).is_file()]
    if missing and raw_dir.is_dir() and any(raw_dir.iterdir()):
        raise DataError(
            f"{name}: {raw_dir} lacks {', '.join(missing)}. Add what is missing, or move the folder away to download "
            f"it whole (torch_geometric would empty it first)."
        )
    try:
        return build()
    except (OSError, zipfile.BadZipFile) as err:
        if not missing:
            raise DataError(f"{name}: the files in {raw_dir.parent} cannot be read or processed: {err}") from err
        raise DataError(
            f"{name}: download failed ({err}). Tried {url}\nWithout a connection, put these files into {raw_dir} by "
            f"hand and run the same command again: {', '.join(raw_files)}"
        ) from err
    except (pickle.UnpicklingError, EOFError, RuntimeError, KeyError, ValueError) as err:
        raise DataError(
            f"{name}: a file in {raw_dir} or the processed folder beside it is damaged ({type(err).__name__}: {err}). "
            f"Move the processed folder away to make it anew, or fetch the raw files again from {url}"
        ) from err


def flat_graphs(dataset: InMemoryDataset, *, name: str, split: str, level: str = "graph") -> GraphDataset:
    """Return the graphs of an in-memory PyG data set, which already holds them end to end, as a GraphDataset."""
    data, slices = dataset._data, dataset.slices
    return GraphDataset(
        name=name,
        split=split,
        level=level,
        x_NF=_columns(data.x),
        edge_index_2E=data.edge_index,
        edge_attr_EF=None if data.edge_attr is None else _columns(data.edge_attr),
        y=_columns(data.y),
        node_ptr=_offsets(slices["x"]),
        edge_ptr=_offsets(slices["edge_index"]),
    )


def _columns(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def _offsets(slices: Tensor) -> Tensor:
    return torch.as_tensor(slices, dtype=torch.int64)
