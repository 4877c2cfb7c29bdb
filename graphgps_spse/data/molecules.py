"""From SMILES to graphs with the features of the Open Graph Benchmark (Hu et al. 2020), one or millions at a time."""

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.cores import count_cores
from graphgps_spse.errors import DataError

NUM_ATOM_COLUMNS, NUM_BOND_COLUMNS = 9, 3
MAX_ATOMS = 1 << 15
"""Atoms that the int16 of edge_index can number."""

_BLOCK = 2048  # molecules that a worker process turns into graphs at a time: about half a second
_CHIRALITIES = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_HYBRIDIZATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
_BOND_TYPES = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")


class Molecule(NamedTuple):
    """One molecule as a graph, atoms in the order of its SMILES, every bond as two edges, one after the other."""

    x: np.ndarray
    """[n, 9] uint8, the columns of models.features.ATOM_COLUMNS."""
    edge_index: np.ndarray
    """[2, e] int16."""
    edge_attr: np.ndarray
    """[e, 3] uint8, the columns of models.features.BOND_COLUMNS."""


class MoleculeBlock(NamedTuple):
    """Consecutive rows of a list of SMILES: the graphs of those that are molecules, and why the others are not."""

    rows: np.ndarray
    """[G] int64: the row of each graph in the list."""
    sizes: np.ndarray
    """[G] int64: nodes of each graph."""
    num_edges: np.ndarray
    """[G] int64: edges of each graph."""
    x: np.ndarray
    """[N, 9] uint8."""
    edge_index: np.ndarray
    """[2, E] int16; nodes count within each graph."""
    edge_attr: np.ndarray
    """[E, 3] uint8."""
    bad: list[tuple[int, str]]
    """Row and reason of each row that is no graph."""


def featurise(smiles: str) -> Molecule:
    """Return the graph of a SMILES string. Raises DataError, with the reason that RDKit gives, if there is none.

    Equal to `ogb.utils.smiles2graph`, but for chirality, of which there are four here: what is neither unspecified nor
    one of the two tetrahedral kinds is 3, other.
    """
    mol, tables = _parse(smiles), _tables()
    x = np.array([_atom_features(atom, tables) for atom in mol.GetAtoms()], dtype=np.uint8)
    ends, features = [], []
    for bond in mol.GetBonds():
        i, j = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        ends += [(i, j), (j, i)]
        features += [_bond_features(bond, tables, smiles)] * 2
    edge_index = np.array(ends, dtype=np.int16).reshape(-1, 2).T
    return Molecule(x, edge_index, np.array(features, dtype=np.uint8).reshape(-1, NUM_BOND_COLUMNS))


def featurise_block(smiles: Sequence[Any], first_row: int = 0) -> MoleculeBlock:
    """Return the graphs of some rows; the first of them is row `first_row` of its list."""
    from rdkit import rdBase

    rows, molecules, bad = [], [], []
    with rdBase.BlockLogs():  # the reasons are returned
        for row, text in enumerate(smiles, first_row):
            try:
                molecules.append(featurise(text))
                rows.append(row)
            except DataError as err:
                bad.append((row, str(err)))
    return MoleculeBlock(
        rows=np.array(rows, dtype=np.int64),
        sizes=np.array([len(m.x) for m in molecules], dtype=np.int64),
        num_edges=np.array([len(m.edge_attr) for m in molecules], dtype=np.int64),
        x=np.concatenate([np.empty((0, NUM_ATOM_COLUMNS), np.uint8), *(m.x for m in molecules)]),
        edge_index=np.concatenate([np.empty((2, 0), np.int16), *(m.edge_index for m in molecules)], axis=1),
        edge_attr=np.concatenate([np.empty((0, NUM_BOND_COLUMNS), np.uint8), *(m.edge_attr for m in molecules)]),
        bad=bad,
    )


def featurise_many(smiles: Iterable[Any], *, num_workers: int = 1) -> Iterator[MoleculeBlock]:
    """Yield the graphs of many SMILES, block after block in their order; the same for any number of processes.

    `smiles` is read as blocks are asked for, a few ahead, so neither it nor the graphs need be in memory as a whole.
    """
    texts, row = iter(smiles), 0
    if num_workers < 2:
        while block := list(islice(texts, _BLOCK)):
            yield featurise_block(block, row)
            row += len(block)
        return
    with ProcessPoolExecutor(num_workers, initializer=_end_with_parent) as pool:
        pending: deque[Future[MoleculeBlock]] = deque()
        try:
            while True:
                while len(pending) < 3 * num_workers and (block := list(islice(texts, _BLOCK))):
                    pending.append(pool.submit(featurise_block, block, row))
                    row += len(block)
                if not pending:
                    return
                yield pending.popleft().result()
        except BrokenProcessPool as err:
            raise DataError(
                "a process that turns SMILES into graphs was killed, perhaps because memory ran out; run the same "
                "command again with a lower num_threads"
            ) from err
        finally:
            for future in pending:
                future.cancel()


def _end_with_parent() -> None:
    """Have this process end when the one that started it is killed; else it would wait for work for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def count_workers(num_threads: int) -> int:
    """Return the workers that `num_threads` of a configuration means: 0 is one for each core this process may use."""
    return num_threads or count_cores()


def fold_chirality(x_NF: np.ndarray) -> np.ndarray:
    """Return atom features of any version of ogb as uint8 with four chiralities: the fifth, for none, becomes other."""
    folded = np.asarray(x_NF).astype(np.uint8)
    np.minimum(folded[:, 1], len(_CHIRALITIES) - 1, out=folded[:, 1])
    return folded


class _Tables(NamedTuple):
    """RDKit's values to positions in OGB's lists."""

    chirality: dict[Any, int]
    hybridization: dict[Any, int]
    bond_type: dict[Any, int]
    stereo: dict[Any, int]


@cache
def _tables() -> _Tables:
    from rdkit import Chem

    kinds = (
        (Chem.ChiralType, _CHIRALITIES),
        (Chem.HybridizationType, _HYBRIDIZATIONS),
        (Chem.BondType, _BOND_TYPES),
        (Chem.BondStereo, _STEREO),
    )
    return _Tables(*({kind.names[name]: place for place, name in enumerate(names)} for kind, names in kinds))


def _atom_features(atom: Any, tables: _Tables) -> tuple[int, ...]:
    number, degree, charge = atom.GetAtomicNum(), atom.GetTotalDegree(), atom.GetFormalCharge()
    return (
        number - 1 if 1 <= number <= 118 else 118,
        tables.chirality.get(atom.GetChiralTag(), len(_CHIRALITIES) - 1),
        min(degree, 11),
        charge + 5 if -5 <= charge <= 5 else 11,
        min(atom.GetTotalNumHs(), 9),
        min(atom.GetNumRadicalElectrons(), 5),
        tables.hybridization.get(atom.GetHybridization(), len(_HYBRIDIZATIONS)),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    )


def _bond_features(bond: Any, tables: _Tables, smiles: str) -> tuple[int, ...]:
    stereo = tables.stereo.get(bond.GetStereo())
    if stereo is None:
        raise DataError(f"'{smiles}': OGB's features have no place for the bond stereo {bond.GetStereo()}")
    return tables.bond_type.get(bond.GetBondType(), len(_BOND_TYPES)), stereo, int(bond.GetIsConjugated())


def _parse(smiles: Any) -> Any:
    from rdkit import Chem

    if not isinstance(smiles, str):
        raise DataError(f"{smiles!r} is no text, so it is no SMILES")
    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raw = Chem.MolFromSmiles(smiles, sanitize=False)
        problems = [] if raw is None else [problem.Message() for problem in Chem.DetectChemistryProblems(raw)]
        raise DataError(f"'{smiles}' is no molecule: {'; '.join(problems) or 'it cannot be parsed as SMILES'}")
    if not 0 < mol.GetNumAtoms() <= MAX_ATOMS:
        raise DataError(f"'{smiles}' has {mol.GetNumAtoms()} atoms; 1 to {MAX_ATOMS:,} can be used")
    return mol
