"""Data sets of torch_geometric: its classes download the raw files, which are read here, once, into flat arrays.

torch_geometric itself would open them with the full unpickler and keep pickles, and these run the code of whoever made
them. Here no code runs (unpickle.py), and plain arrays are kept beside the raw files (kept_arrays.py).
"""

import hashlib
import logging
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.kept_arrays import Arrays, digest_of, make_or_read
from graphgps_spse.data.unpickle import DAMAGED, UntrustedError
from graphgps_spse.errors import DataError
from graphgps_spse.options import Options, option

log = logging.getLogger(__name__)

_LAYOUT = 1  # of the kept arrays, to be raised when the same raw files give others


class TrustOptions(Options, section="dataset"):
    """Which files may run code."""

    trust_data: bool = option(
        False, "read raw files of PyG that hold more than plain tensors: they may run any code (command line only)"
    )


class RawGraph(NamedTuple):
    """One graph of a raw file."""

    x: Tensor
    """[n, F]."""
    edge_index: Tensor
    """[2, e]; nodes count within the graph."""
    edge_attr: Tensor | None
    """[e, D]."""
    y: Tensor
    """[1, T] for a graph, [n, T] for its nodes."""


@dataclass(frozen=True)
class RawFiles:
    """The raw files of one of torch_geometric's data sets, and the arrays that are made of them."""

    name: str
    folder: Path
    files: tuple[str, ...]
    url: str
    kept: Path
    """The folder of the arrays."""
    archive: str = ""
    """What the download is called, where PyG takes a file of that name in `folder` for it."""

    def read(self, download: Callable[[], Any], read_splits: Callable[[], dict[str, Iterator[RawGraph]]]) -> Arrays:
        """Return the arrays of all splits, for `as_split`. They are kept under a name that follows from the raw files.

        Raises DataError with a way out.
        """
        self._require(download)
        contents = []
        for file in self.files:
            with (self.folder / file).open("rb") as raw:
                contents.append(hashlib.file_digest(raw, "sha256").hexdigest())
        path = self.kept / f"graphs-{digest_of([str(_LAYOUT), *contents])}.npz"
        return make_or_read(path, lambda: self._make(read_splits))

    def _require(self, download: Callable[[], Any]) -> None:
        """Have PyG download what is missing. It may empty the folder first, so one that is half full is refused."""
        missing = [file for file in self.files if not (self.folder / file).is_file()]
        if not missing:
            return
        has_archive = bool(self.archive) and (self.folder / self.archive).is_file()
        if not has_archive and self.folder.is_dir() and any(self.folder.iterdir()):
            raise DataError(
                f"{self.name}: {self.folder} lacks {', '.join(missing)}. Add what is missing, or move the folder away "
                "to download it whole (torch_geometric would empty it first)."
            )
        try:
            download()
        except (OSError, zipfile.BadZipFile) as err:
            if has_archive or isinstance(err, zipfile.BadZipFile):
                raise DataError(
                    f"{self.name}: {self.folder / self.archive} cannot be unpacked ({err}); an interrupted download "
                    f"looks like this. Move it away and fetch it again from {self.url}"
                ) from err
            by_hand = f"{', '.join(self.files)}" + (f", or {self.archive}, which holds it" if self.archive else "")
            raise DataError(
                f"{self.name}: download failed ({err}). Tried {self.url}\nWithout a connection, put these files into "
                f"{self.folder} by hand and run the same command again: {by_hand}"
            ) from err

    def _make(self, read_splits: Callable[[], dict[str, Iterator[RawGraph]]]) -> Arrays:
        log.info("%s: reading the raw files in %s, once", self.name, self.folder)
        try:
            return {
                f"{split}.{key}": tensor.numpy()
                for split, graphs in read_splits().items()
                for key, tensor in _flatten(graphs).items()
            }
        except UntrustedError as err:
            raise DataError(f"{self.name}: a file in {self.folder} {err}. The original is at {self.url}") from err
        except DataError as err:
            raise DataError(f"{self.name}: {err}. The original is at {self.url}") from err
        except DAMAGED as err:
            problem = f"is damaged or holds something else ({type(err).__name__}: {err})"
            raise DataError(f"{self.name}: a file in {self.folder} {problem}. Fetch it again from {self.url}") from err


def download_raw_files(class_name: str, root: Path, **options: Any) -> None:
    """Download the raw files of one of torch_geometric's data sets into `root`, and process nothing."""
    import torch_geometric.datasets  # here, as its import takes as long as torch's, and files are downloaded once

    pyg_class = getattr(torch_geometric.datasets, class_name)
    download_only = type(class_name, (pyg_class,), {"has_process": False, "load": lambda self, path: None})
    download_only(str(root), **options)


def as_split(arrays: Arrays, *, name: str, split: str, level: str = "graph") -> GraphDataset:
    """Return a split of what `RawFiles.read` returned."""
    tensors = {
        key.removeprefix(f"{split}."): torch.from_numpy(array)
        for key, array in arrays.items()
        if key.startswith(f"{split}.")
    }
    return GraphDataset(
        name=name,
        split=split,
        level=level,
        x_NF=tensors["x"],
        edge_index_2E=tensors["edge_index"],
        edge_attr_EF=tensors.get("edge_attr"),
        y=tensors["y"],
        node_ptr=tensors["node_ptr"],
        edge_ptr=tensors["edge_ptr"],
    )


def compact_dtype(num_nodes: int) -> type[np.integer]:
    """Return the narrowest type that numbers the nodes of graphs of up to `num_nodes` nodes and fits torch."""
    return np.uint8 if num_nodes <= 256 else np.int16 if num_nodes <= 32768 else np.int64


def _flatten(raw_graphs: Iterator[RawGraph]) -> dict[str, Tensor]:
    """Return graphs end to end, their edges in the narrowest type that numbers the nodes of the largest graph."""
    graphs = list(raw_graphs)
    sizes = torch.tensor([len(graph.x) for graph in graphs])
    num_edges = torch.tensor([graph.edge_index.shape[1] for graph in graphs])
    edge_attr = [graph.edge_attr for graph in graphs if graph.edge_attr is not None]
    tensors = {
        "x": torch.cat([graph.x for graph in graphs]),
        "edge_index": _narrowed(torch.cat([graph.edge_index for graph in graphs], dim=1), int(sizes.max())),
        "y": torch.cat([graph.y for graph in graphs]),
        "node_ptr": _offsets(sizes),
        "edge_ptr": _offsets(num_edges),
    }
    return tensors | ({"edge_attr": torch.cat(edge_attr)} if edge_attr else {})


def _narrowed(edges_2E: Tensor, num_nodes: int) -> Tensor:
    """Return edges in the compact type; numbers that point outside their graph are left, to be reported as they are."""
    if edges_2E.numel() and not 0 <= int(edges_2E.min()) <= int(edges_2E.max()) < num_nodes:
        return edges_2E
    return torch.from_numpy(edges_2E.numpy().astype(compact_dtype(num_nodes)))


def _offsets(count_G: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64), count_G.cumsum(0)])
