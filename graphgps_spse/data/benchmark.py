"""PATTERN, CLUSTER, MNIST and CIFAR10 of "Benchmarking Graph Neural Networks" (Dwivedi et al. 2023), by PyG's class."""

from pathlib import Path
from typing import Any

from torch_geometric.datasets import GNNBenchmarkDataset

from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.pyg import flat_graphs, load_pyg
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.registry import datasets, nearest

SPLITS = ("train", "val", "test")
SBM_NAMES = ("PATTERN", "CLUSTER")
SUPERPIXEL_NAMES = ("MNIST", "CIFAR10")


def benchmark_spec(name: str, suffix: str = "") -> DatasetSpec:
    """Return what the benchmark binds to one of its data sets; `suffix` marks graphs other than the published ones."""
    superpixels = name in SUPERPIXEL_NAMES
    num_classes = {"PATTERN": 2, "CLUSTER": 6}.get(name, 10)
    dim_node = {"PATTERN": 3, "CLUSTER": 7, "MNIST": 3, "CIFAR10": 5}[name]
    return DatasetSpec(
        name=name + suffix,
        level="graph" if superpixels else "node",
        task="classification" if superpixels else "classification_sbm",
        num_targets=1,
        num_classes=num_classes,
        metric="accuracy" if superpixels else "accuracy-SBM",
        node_input=InputSpec("floats", dim_node),
        edge_input=InputSpec("floats", 1) if superpixels else InputSpec("none", 0),
        directed=superpixels,
    )


def check_name(name: str, known: tuple[str, ...], data_format: str) -> None:
    """Raise ConfigError where `dataset.name` is not one of `known`."""
    if name not in known:
        hint = nearest(name, list(known))
        raise ConfigError(f"dataset.name: '{name}' is no data set of {data_format}. Known: {', '.join(known)}.{hint}")


@datasets.register("PyG-GNNBenchmarkDataset")
class Benchmark:
    """One of the four data sets as PyG distributes it; x of superpixels is mean colour, then centre (row, column)."""

    def __init__(self, *, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.spec = benchmark_spec(name)

    @classmethod
    def from_cfg(cls, cfg: Any) -> "Benchmark":
        """Read `dataset.name` and `dataset.dir`."""
        check_name(cfg.dataset.name, SBM_NAMES + SUPERPIXEL_NAMES, "PyG-GNNBenchmarkDataset")
        return cls(root=Path(cfg.dataset.dir) / "GNNBenchmarkDataset", name=cfg.dataset.name)

    def load(self) -> dict[str, GraphDataset]:
        """Read, and at first download and process, the three splits. Raises DataError with a way out."""
        return {split: self._load_split(split) for split in SPLITS}

    def _load_split(self, split: str) -> GraphDataset:
        url = GNNBenchmarkDataset.urls[self.name]
        archive = url.rpartition("/")[2]
        raw_dir = self.root / self.name / "raw"
        dataset = load_pyg(
            lambda: GNNBenchmarkDataset(str(self.root), name=self.name, split=split),
            name=self.name,
            raw_dir=raw_dir,
            raw_files=[archive.replace(".zip", ".pt")],
            url=url,
            archive=archive,
        )
        superpixels = self.name in SUPERPIXEL_NAMES
        columns = ("x", "y", "pos", "edge_attr") if superpixels else ("x", "y")
        lacking = [key for key in columns if getattr(dataset._data, key, None) is None]
        if lacking:
            raise DataError(f"{self.name}, {split} split: the graphs in {raw_dir} have no {', '.join(lacking)}")
        graphs = flat_graphs(
            dataset, name=self.name, split=split, level=self.spec.level, with_positions=superpixels
        )  # fmt: skip
        self._check(graphs, raw_dir)
        return graphs

    def _check(self, graphs: GraphDataset, raw_dir: Path) -> None:
        where = f"{self.name}, {graphs.split} split ({raw_dir})"
        found, expected = graphs.x_NF.shape[1], self.spec.node_input.size
        if found != expected:
            raise DataError(f"{where}: nodes have {found} features, expected {expected}; is this another data set?")
        least, most = int(graphs.y.min()), int(graphs.y.max())
        if least < 0 or most >= self.spec.num_classes:
            raise DataError(f"{where}: classes {least} to {most}, expected 0 to {self.spec.num_classes - 1}")
