"""From SMILES to graphs with the features of the Open Graph Benchmark (Hu et al. 2020), one or millions at a time."""

import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from graphgps_spse.cores import count_cores
from graphgps_spse.data.workers import begin_worker
from graphgps_spse.errors import DataError

log = logging.getLogger(__name__)

NUM_ATOM_COLUMNS, NUM_BOND_COLUMNS = 9, 3
MAX_ATOMS = 1 << 15
"""Atoms that the int16 of edge_index can number."""

_NUM_ELEMENTS = 118
ENDED = "ends the process that reads it"
"""What the reason says of a row that was not read to its end."""
_SHOWN = 60  # characters of a SMILES in a message
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
    return featurise_mol(_parse(smiles), smiles)


def featurise_mol(mol: Any, smiles: str) -> Molecule:
    """Return the graph of an RDKit molecule, atoms in its order; `smiles` is what errors call it."""
    tables = _tables()
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
    Where a process is killed, its molecules are read again, alone; one that kills its process then, too, is a bad row.
    """
    parts = _parts(smiles)
    if num_workers < 2:
        for first_row, part in parts:
            yield featurise_block(part, first_row)
        return
    waiting: deque[_Part] = deque()
    while True:
        with _processes(num_workers) as pool:
            try:
                yield from _featurise_with(pool, num_workers, parts, waiting)
                return
            except BrokenProcessPool:
                told = "a process that turns SMILES into graphs was killed; what it read is read again by one at a time"
                log.warning(told)
        while waiting:
            yield from _featurise_apart(*waiting.popleft())


_Part = tuple[int, list[Any]]
"""The number of the first of some consecutive rows, and their SMILES."""


def _parts(smiles: Iterable[Any]) -> Iterator[_Part]:
    texts, row = iter(smiles), 0
    while part := list(islice(texts, _BLOCK)):
        yield row, part
        row += len(part)


def _processes(number: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(number, initializer=begin_worker)


def _featurise_with(
    pool: ProcessPoolExecutor, num_workers: int, parts: Iterator[_Part], waiting: deque[_Part]
) -> Iterator[MoleculeBlock]:
    """Yield the blocks of all parts; `waiting` holds those that were taken and whose block was not yet yielded."""
    futures: deque[Future[MoleculeBlock]] = deque()
    try:
        while True:
            while len(waiting) < 3 * num_workers and (part := next(parts, None)):
                waiting.append(part)
                futures.append(pool.submit(featurise_block, part[1], part[0]))
            if not waiting:
                return
            block = futures.popleft().result()
            waiting.popleft()
            yield block
    finally:
        for future in futures:
            future.cancel()


def _featurise_apart(first_row: int, part: list[Any]) -> Iterator[MoleculeBlock]:
    """Yield the blocks of some rows, each read by a process of its own, down to the single row that kills it."""
    try:
        with _processes(1) as pool:
            yield pool.submit(featurise_block, part, first_row).result()
    except BrokenProcessPool:
        if len(part) > 1:
            half = len(part) // 2
            yield from _featurise_apart(first_row, part[:half])
            yield from _featurise_apart(first_row + half, part[half:])
        else:
            reason = f"{show_smiles(part[0])} {ENDED}, by a fault of RDKit or for want of memory"
            yield featurise_block([])._replace(bad=[(first_row, reason)])


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
        number - 1 if 1 <= number <= _NUM_ELEMENTS else _NUM_ELEMENTS,
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
        raise DataError(f"{show_smiles(smiles)}: OGB's features have no place for the bond stereo {bond.GetStereo()}")
    return tables.bond_type.get(bond.GetBondType(), len(_BOND_TYPES)), stereo, int(bond.GetIsConjugated())


def _parse(smiles: Any) -> Any:
    if not isinstance(smiles, str):
        raise DataError(f"{smiles!r} is no text, so it is no SMILES")
    try:
        smiles.encode()
    except UnicodeEncodeError:
        raise DataError(f"{show_smiles(smiles)} is no molecule: it is not UTF-8 text") from None
    for number in re.findall(r"\[\d*#(\d+)", smiles):  # RDKit keeps eight bits of it, so 300 would be 44
        if int(number) > _NUM_ELEMENTS:
            raise DataError(f"{show_smiles(smiles)} is no molecule: there is no element {number}")
    try:
        mol = _sanitised(smiles)
    except RuntimeError as err:  # how RDKit says that it did not expect this
        reason = str(err).partition("Violation occurred")[0].removeprefix("Pre-condition Violation")
        raise DataError(f"{show_smiles(smiles)} is no molecule: {' '.join(reason.split())}") from err
    if not 0 < mol.GetNumAtoms() <= MAX_ATOMS:
        raise DataError(f"{show_smiles(smiles)} has {mol.GetNumAtoms():,} atoms; 1 to {MAX_ATOMS:,} can be used")
    return mol


def _sanitised(smiles: str) -> Any:
    from rdkit import Chem

    mol = Chem.MolFromSmiles(smiles)
    if mol is None:
        raw = Chem.MolFromSmiles(smiles, sanitize=False)
        problems = [] if raw is None else [problem.Message() for problem in Chem.DetectChemistryProblems(raw)]
        reason = "; ".join(problems) or "it cannot be parsed as SMILES"
        raise DataError(f"{show_smiles(smiles)} is no molecule: {reason}")
    return mol


def show_smiles(smiles: str) -> str:
    """Return a SMILES as messages show it: in quotes, the first 60 characters."""
    printable = smiles[:_SHOWN].encode("utf-8", "backslashreplace").decode()
    return f"'{printable}{'..' if len(smiles) > _SHOWN else ''}'"
