"""Folders of graphs for training: the inverse of data/folder.py."""

import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.data.base import GraphDataset, flat_rows
from graphgps_spse.data.folder import checked_split, spec_of_meta
from graphgps_spse.data.splits import SPLITS
from graphgps_spse.errors import DataError
from graphgps_spse.files import write_atomic, write_json
from graphgps_spse.interop import from_pyg

if TYPE_CHECKING:
    from torch_geometric.data import Data


def save_folder(
    graphs: "GraphDataset | Iterable[Data]",
    split: Mapping[str, Sequence[int]],
    folder: str | Path,
    *,
    level: str = "graph",
    task: str = "",
    target_names: Sequence[str] = (),
    directed: bool = False,
) -> Path:
    """Write graphs as a folder that `dataset.format: folder` reads (docs/own_data.md), and return its path.

    `split` maps train, val and test to numbers of graphs. `task` is regression, classification, classification_sbm or
    multilabel; empty: classification for integer targets of one column, otherwise regression. Features of nodes and
    edges become `types` for one column of integers, `ogb` for the columns of `from_smiles`, and `floats` otherwise.
    Raises DataError for a folder that has a meta.json already, for an unknown or empty part, for a number that is no
    graph or is listed twice, for the features of PyG's `from_smiles`, and for what the reader of the folder would
    refuse. Then nothing is written.
    """
    folder = Path(folder)
    whole = graphs if isinstance(graphs, GraphDataset) else from_pyg(graphs, level=level)
    if (folder / "meta.json").exists():
        raise DataError(f"{folder} holds a data set already; choose another folder, or move it away")
    numbers = {part: _numbers_of(split.get(part, ()), part, len(whole)) for part in SPLITS}
    listed = Counter(torch.cat([*numbers.values()]).tolist())
    twice = [number for number, times in listed.items() if times > 1]
    if twice:
        raise DataError(f"split: graph {twice[0]} is listed twice; list each graph once")
    unknown = sorted(set(split) - set(SPLITS))
    if unknown:
        raise DataError(f"split: unknown part '{unknown[0]}'; parts are {', '.join(SPLITS)}")
    meta = _meta_of(whole, task, tuple(target_names), directed)
    if whole.not_ogb and meta["node_features"]["kind"] == "ogb":
        raise DataError(whole.not_ogb)
    spec, arrays = spec_of_meta(meta, folder, folder.name), {part: _arrays_of(whole, numbers[part]) for part in SPLITS}
    for part in SPLITS:
        checked_split(spec, part, arrays[part], f"{folder}, {part} split")
    folder.mkdir(parents=True, exist_ok=True)
    for part in SPLITS:
        content, contents = io.BytesIO(), dict[str, Any](arrays[part])
        np.savez(content, **contents)
        write_atomic(folder / f"{part}.npz", content.getvalue())
    write_json(folder / "meta.json", meta)  # last, so that a folder with it is complete
    return folder


def _numbers_of(listed: Any, part: str, num_graphs: int) -> Tensor:
    numbers = np.asarray(list(listed))
    if not len(numbers):
        raise DataError(f"split: {part} has no graphs; it needs numbers of graphs for {', '.join(SPLITS)}")
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or not np.array_equal(numbers, np.floor(numbers)):
        raise DataError(f"split: {part} must list whole numbers, those of its graphs")
    if not 0 <= numbers.min() <= numbers.max() < num_graphs:
        raise DataError(f"split: {part} names a graph outside 0..{num_graphs - 1}")
    return torch.from_numpy(numbers.astype(np.int64))


def _meta_of(graphs: GraphDataset, task: str, target_names: tuple[str, ...], directed: bool) -> dict[str, Any]:
    num_targets = graphs.y.shape[1]
    if not num_targets:
        raise DataError("the graphs have no targets y to train on")
    if not task:
        is_class = not graphs.y.is_floating_point() and num_targets == 1
        task = "classification" if is_class else "regression"
    meta: dict[str, Any] = {
        "task": task,
        "level": graphs.level,
        "num_targets": num_targets,
        "node_features": _kind_of(graphs.x_NF, "node features", 9),
        "directed": directed,
    }
    if graphs.edge_attr_EF is not None:
        meta["edge_features"] = _kind_of(graphs.edge_attr_EF, "edge features", 3)
    if task.startswith("classification"):
        meta["num_classes"] = max(2, 0 if graphs.y.is_floating_point() else int(graphs.y.max()) + 1)
    elif graphs.y.is_floating_point() and bool(graphs.y.isnan().any()):
        meta["may_miss_targets"] = True
    if target_names:
        meta["target_names"] = list(target_names)
    return meta


def _kind_of(values: Tensor, what: str, ogb_columns: int) -> dict[str, Any]:
    if values.is_floating_point():
        return {"kind": "floats", "size": values.shape[1]}
    if values.shape[1] == 1:
        return {"kind": "types", "size": max(1, int(values.max()) + 1) if len(values) else 1}
    if values.shape[1] == ogb_columns:
        return {"kind": "ogb"}
    raise DataError(
        f"{what} are {values.shape[1]} columns of integers; make them floats, or one column, or those of OGB "
        f"({ogb_columns})"
    )


def _arrays_of(graphs: GraphDataset, index: Tensor) -> dict[str, np.ndarray]:
    nodes, edges = flat_rows(graphs.node_ptr, index), flat_rows(graphs.edge_ptr, index)
    zero = torch.zeros(1, dtype=torch.int64)
    arrays = {
        "node_ptr": torch.cat([zero, graphs.sizes_G[index].cumsum(0)]),
        "edge_ptr": torch.cat([zero, graphs.edge_ptr.diff()[index].cumsum(0)]),
        "edge_index": graphs.edge_index_2E[:, edges],
        "x": graphs.x_NF[nodes],
        "y": graphs.y[index if graphs.level == "graph" else nodes],
    }
    if graphs.edge_attr_EF is not None:
        arrays["edge_attr"] = graphs.edge_attr_EF[edges]
    return {name: values.numpy() for name, values in arrays.items()}
