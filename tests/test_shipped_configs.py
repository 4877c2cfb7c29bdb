"""Every shipped configuration, as it is, for one epoch on miniature data of its family."""

import json
import pickle
from pathlib import Path

import pytest
import torch

from graphgps_spse.config import load_config
from graphgps_spse.run import run_seeds

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted(path for path in (ROOT / "configs").rglob("*.yaml"))


def lay_zinc(root: Path) -> None:
    """Raw files as torch_geometric's ZINC reads them: rings of 3 to 8 atoms with one atom hanging on."""
    raw = root / "ZINC" / "raw"
    raw.mkdir(parents=True)
    for split in ("train", "val", "test"):
        molecules = []
        for ring in range(3, 9):
            bonds = torch.zeros(ring + 1, ring + 1, dtype=torch.int64)
            for i, j in [*((i, (i + 1) % ring) for i in range(ring)), (0, ring)]:
                bonds[i, j] = bonds[j, i] = 1 + (i + j) % 3
            atoms = torch.arange(ring + 1) % 21
            molecule = {"num_atom": ring + 1, "atom_type": atoms, "bond_type": bonds}
            molecules.append(molecule | {"logP_SA_cycle_normalized": torch.tensor([float(ring)])})
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(molecules))
        (raw / f"{split}.index").write_text(",".join(str(i) for i in range(len(molecules))) + "\n")


MINIATURES = {
    "PyG-ZINC": ["dataset.dir=datasets"],
    "cycles": ["dataset.cycles.num_graphs=[8, 4, 4]"],
}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_trains_for_an_epoch(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data_format = load_config(path).dataset.format
    if data_format == "PyG-ZINC":
        lay_zinc(tmp_path / "datasets")
    overrides = [*MINIATURES[data_format], "optim.max_epoch=1", "num_threads=1", "accelerator=cpu"]
    (result,) = run_seeds(load_config(path, overrides))
    assert (result.name, result.epochs) == (path.stem, 1)
    line = json.loads((tmp_path / "results" / path.stem / "0" / "train" / "stats.json").read_text())
    assert 0 < line["loss"] < 1e3
