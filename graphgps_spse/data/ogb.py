"""Molecular benchmarks with `dataset.format: OGB`, as in GraphGPS: Peptides and PCQM4Mv2."""

from pathlib import Path
from typing import Any

from graphgps_spse.cores import ThreadOptions
from graphgps_spse.data.molecules import count_workers
from graphgps_spse.data.options import SourceOptions
from graphgps_spse.data.pcqm4mv2 import PCQM4Mv2
from graphgps_spse.data.pyg import TrustOptions
from graphgps_spse.data.pyg_datasets import PyGDataset, open_known
from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import datasets, nearest


@datasets.register("OGB")
class OGB:
    """Peptides (Dwivedi et al. 2022) from PyG's raw files, and PCQM4Mv2 (Hu et al. 2021) from OGB's raw files."""

    names = ("peptides-functional", "peptides-structural", *(f"PCQM4Mv2-{kind}" for kind in PCQM4Mv2.kinds))
    """Values of `dataset.name`."""

    @classmethod
    def from_cfg(cls, cfg: Any) -> PyGDataset | PCQM4Mv2:
        """Read `dataset.name` and `dataset.dir`, and of each family what it needs besides."""
        source = SourceOptions.from_cfg(cfg)
        name, root = source.name, Path(source.dir)
        if name not in cls.names:
            raise ConfigError(
                f"dataset.name: '{name}' is not a data set of OGB.{nearest(name, list(cls.names))} "
                f"Known: {', '.join(cls.names)}"
            )
        family, kind = name.split("-")
        if family == "peptides":
            of_pyg = "Peptides-func" if kind == "functional" else "Peptides-struct"
            return open_known("LRGBDataset", of_pyg, root, trusted=TrustOptions.from_cfg(cfg).trust_data)
        if kind == "inference" and cfg.train.mode == "custom":
            raise ConfigError(
                f"dataset.name: {name} has no training split; use it with python scripts/predict.py, for predictions "
                "of a finished run"
            )
        return PCQM4Mv2(root=root, kind=kind, num_workers=count_workers(ThreadOptions.from_cfg(cfg).num_threads))
