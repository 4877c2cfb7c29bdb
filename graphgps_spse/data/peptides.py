"""Peptides-func and Peptides-struct of the Long Range Graph Benchmark (Dwivedi et al. 2022), by PyG's own loader."""

from dataclasses import replace
from pathlib import Path

import torch
from torch_geometric.datasets import LRGBDataset

from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.molecules import NUM_ATOM_COLUMNS, NUM_BOND_COLUMNS, fold_chirality
from graphgps_spse.data.pyg import flat_graphs, load_pyg

SPLITS = ("train", "val", "test")


class Peptides:
    """15,535 peptides as graphs of heavy atoms, 10,873 / 2,331 / 2,331.

    "functional": 10 binary labels, average precision. "structural": 11 standardised properties, mean absolute error.
    """

    kinds = ("functional", "structural")

    def __init__(self, *, root: Path, kind: str) -> None:
        """`root` is the folder of PyG's LRGBDataset."""
        functional = kind == "functional"
        self.root, self.pyg_name = root, "peptides-func" if functional else "peptides-struct"
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
        """Read, and at first download and process, the three splits. Raises DataError with a way out."""
        return {split: self._load_split(split) for split in SPLITS}

    def _load_split(self, split: str) -> GraphDataset:
        dataset = load_pyg(
            lambda: LRGBDataset(str(self.root), name=self.pyg_name, split=split),
            name=self.spec.name,
            raw_dir=self.root / self.pyg_name / "raw",
            raw_files=[f"{s}.pt" for s in SPLITS],
            url=LRGBDataset.urls[self.pyg_name],
        )
        graphs = flat_graphs(dataset, name=self.spec.name, split=split)
        return replace(graphs, x_NF=torch.from_numpy(fold_chirality(graphs.x_NF.numpy())), y=graphs.y.float())
