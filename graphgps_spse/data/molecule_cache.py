"""Graphs, scaffolds and canonical SMILES of a list of molecules, kept on disk for large files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphgps_spse.data.kept_arrays import Arrays, digest_of, make_or_read
from graphgps_spse.data.molecule_checks import Examined, examine_molecule
from graphgps_spse.data.molecule_splits import featurise_rows
from graphgps_spse.data.molecules import KILLED_PROCESS, MoleculeBlock, map_smiles
from graphgps_spse.data.splits import find_scaffold

_MIN_STORED_ROWS = 20_000  # the arrays of fewer rows are computed in seconds
_FEATURES_VERSION = 1  # to be raised when the same SMILES gives other arrays


@dataclass
class MoleculeCache:
    """Results for lists of SMILES. File names contain a digest of the list, so that a file never holds another list."""

    folder: Path
    num_workers: int
    """Number of processes that convert molecules."""

    def graphs(self, smiles: Sequence[str]) -> MoleculeBlock:
        """Return the graphs of the SMILES, and the rows without a graph."""

        def make() -> Arrays:
            block = featurise_rows(smiles, self.num_workers)
            bad = np.frombuffer(json.dumps(block.bad).encode(), np.uint8)
            return {**block._asdict(), "bad": bad}

        def is_final(arrays: Arrays) -> bool:  # a process that was killed may have lacked memory
            return KILLED_PROCESS not in arrays["bad"].tobytes().decode()

        arrays = dict[str, Any](self._make_or_read("graphs", smiles, make, is_final))
        arrays["bad"] = [(row, reason) for row, reason in json.loads(arrays["bad"].tobytes())]
        return MoleculeBlock(**arrays)

    def scaffolds(self, smiles: Sequence[str]) -> list[str]:
        """Return the scaffold of each molecule."""
        return self._list("scaffolds_with_chirality", smiles, find_scaffold)

    def examined(self, smiles: Sequence[str]) -> list[Examined]:
        """Return the canonical SMILES and the unusual properties of each molecule."""
        found = self._list("canonical", smiles, examine_molecule)
        return [Examined(canonical, tuple(kinds)) for canonical, kinds in found]

    def _list(self, what: str, smiles: Sequence[str], function: Callable[[str], Any]) -> list[Any]:
        """Return `function`, whose values are valid JSON, of each SMILES."""

        def make() -> Arrays:
            values = map_smiles(function, smiles, self.num_workers)
            return {what: np.frombuffer(json.dumps(values).encode(), np.uint8)}

        return json.loads(self._make_or_read(what, smiles, make)[what].tobytes())

    def _make_or_read(
        self,
        what: str,
        smiles: Sequence[str],
        make: Callable[[], Arrays],
        is_final: Callable[[Arrays], bool] = lambda arrays: True,
    ) -> Arrays:
        """Return the arrays that `make` computes from the SMILES."""
        if len(smiles) < _MIN_STORED_ROWS:
            return make()
        from rdkit import rdBase

        digest = digest_of([f"{_FEATURES_VERSION} {rdBase.rdkitVersion}", *smiles])
        return make_or_read(self.folder / f"{what}-{digest}.npz", make, is_final=is_final)
