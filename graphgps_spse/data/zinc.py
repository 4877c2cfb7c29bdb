"""ZINC: constrained solubility of molecules (Dwivedi et al. 2023), one regression target, by PyG's own loader."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch_geometric.datasets import ZINC

from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.pyg import flat_graphs, load_pyg
from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import datasets

SPLITS = ("train", "val", "test")


@datasets.register("PyG-ZINC")
class Zinc:
    """ZINC subset (10,000 / 1,000 / 1,000 molecules) or full (249,456); node and edge labels are integers."""

    def __init__(self, *, root: Path, subset: bool, num_node_types: int, num_edge_types: int) -> None:
        self.root, self.subset = root, subset
        self.spec = DatasetSpec(
            name="ZINC" if subset else "ZINC-full",
            level="graph",
            task="regression",
            num_targets=1,
            num_classes=0,
            metric="mae",
            node_input=InputSpec("types", num_node_types),
            edge_input=InputSpec("types", num_edge_types),
        )

    @classmethod
    def from_cfg(cls, cfg: Any) -> "Zinc":
        """Read `dataset.name` (subset or full), `dataset.dir` and the numbers of types."""
        data = cfg.dataset
        if data.name not in ("subset", "full"):
            raise ConfigError(f"dataset.name: '{data.name}' is no variant of PyG-ZINC. Known: full, subset")
        return cls(
            root=Path(data.dir) / "ZINC",
            subset=data.name == "subset",
            num_node_types=data.node_encoder_num_types,
            num_edge_types=data.edge_encoder_num_types,
        )

    def load(self) -> dict[str, GraphDataset]:
        """Read, and at first download and process, the three splits. Raises DataError with a way out."""
        return {split: self._load_split(split) for split in SPLITS}

    def _load_split(self, split: str) -> GraphDataset:
        dataset = load_pyg(
            lambda: ZINC(str(self.root), subset=self.subset, split=split),
            name=self.spec.name,
            raw_dir=self.root / "raw",
            raw_files=[f"{s}.{kind}" for s in SPLITS for kind in ("pickle", "index")],
            url=f"{ZINC.url} and {ZINC.split_url.format('{train,val,test}')}",
        )
        graphs = flat_graphs(dataset, name=self.spec.name, split=split)
        self._check_types("node", graphs.x_NF, self.spec.node_input.size, split)
        self._check_types("edge", graphs.edge_attr_EF, self.spec.edge_input.size, split)
        return graphs

    def _check_types(self, what: str, column: Tensor | None, size: int, split: str) -> None:
        """Raise ConfigError for a type without a vector: on a GPU the embedding would fail without a word of why."""
        highest = -1 if column is None or not column.numel() else int(column.max())
        if highest >= size:
            raise ConfigError(
                f"dataset.{what}_encoder_num_types: {size} leaves out type {highest} of {self.spec.name} ({split}); "
                f"set at least {highest + 1}"
            )
