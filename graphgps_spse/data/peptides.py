"""Peptides-func and Peptides-struct of the Long Range Graph Benchmark (Dwivedi et al. 2022), from PyG's raw files."""

from collections.abc import Iterator
from pathlib import Path

import torch

from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.molecules import NUM_ATOM_COLUMNS, NUM_BOND_COLUMNS, fold_chirality
from graphgps_spse.data.pyg import RawFiles, RawGraph, download_raw_files, split_from_arrays
from graphgps_spse.data.unpickle import as_tensor, read_torch

SPLITS = ("train", "val", "test")
URLS = {
    "peptides-func": "https://www.dropbox.com/s/ycsq37q8sxs1ou8/peptidesfunc.zip?dl=1",
    "peptides-struct": "https://www.dropbox.com/s/zgv4z8fcpmknhs8/peptidesstruct.zip?dl=1",
}


class Peptides:
    """Graphs of the heavy atoms of 15,535 peptides, with splits of 10,873 / 2,331 / 2,331.

    * "functional": 10 binary labels; the metric is average precision.
    * "structural": 11 standardised properties; the metric is the mean absolute error.
    """

    kinds = ("functional", "structural")

    def __init__(self, *, root: Path, kind: str, trusted: bool = False) -> None:
        """`root` is the folder of PyG's LRGBDataset. With `trusted`, unpickling raw files may run code."""
        functional = kind == "functional"
        self.root, self.pyg_name = root, "peptides-func" if functional else "peptides-struct"
        self.trusted = trusted
        self.spec = DatasetSpec(
            name=self.pyg_name.capitalize(),
            level="graph",
            task="multilabel" if functional else "regression",
            num_targets=10 if functional else 11,
            num_classes=2 if functional else 0,
            metric="ap" if functional else "mae",
            node_input=InputSpec("ogb", NUM_ATOM_COLUMNS),
            edge_input=InputSpec("ogb", NUM_BOND_COLUMNS),
        )

    def load(self) -> dict[str, GraphDataset]:
        """Read the three splits, after a download if files are missing. Raises DataError that says what to do."""
        folder = self.root / self.pyg_name
        raw = RawFiles(
            name=self.spec.name,
            folder=folder / "raw",
            files=tuple(f"{split}.pt" for split in SPLITS),
            url=URLS[self.pyg_name],
            kept=folder,
        )
        arrays = raw.read(
            lambda: download_raw_files("LRGBDataset", self.root, name=self.pyg_name),
            lambda: {split: self._read_graphs(raw.folder / f"{split}.pt") for split in SPLITS},
        )
        return {split: split_from_arrays(arrays, name=self.spec.name, split=split) for split in SPLITS}

    def _read_graphs(self, path: Path) -> Iterator[RawGraph]:
        """Yield the graphs of a file, which holds a list of tuples of tensors."""
        for x, edge_attr, edge_index, y in read_torch(path, trusted=self.trusted):
            yield RawGraph(
                x=torch.from_numpy(fold_chirality(as_tensor(x).numpy())),
                edge_index=as_tensor(edge_index),
                edge_attr=as_tensor(edge_attr),
                y=as_tensor(y).float().reshape(1, -1),
            )
