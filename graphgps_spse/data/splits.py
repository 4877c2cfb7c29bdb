"""Random and scaffold splits of molecules. Scaffold splits follow MoleculeNet and OGB."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from graphgps_spse.data.molecules import show_smiles
from graphgps_spse.errors import DataError
from graphgps_spse.seeding import derive_seed

SPLITS = ("train", "val", "test")


def split_at_random(num_rows: int, fractions: Sequence[float], seed: int) -> dict[str, list[int]]:
    """Return the rows of each split, ascending. Sizes of val and test are rounded down; train has all other rows."""
    num_val, num_test = (math.floor(fraction * num_rows + 1e-9) for fraction in fractions[1:])
    order = np.random.default_rng(derive_seed(seed, "smiles", "split")).permutation(num_rows)
    parts = np.split(order, [num_rows - num_val - num_test, num_rows - num_test])
    return {split: sorted(part.tolist()) for split, part in zip(SPLITS, parts)}


def split_by_scaffold(scaffolds: Sequence[str], fractions: Sequence[float]) -> dict[str, list[int]]:
    """Return the rows of each split, ascending, such that no scaffold is in two splits.

    As in MoleculeNet (Wu et al. 2018), groups with the same scaffold are sorted by size, the largest first; groups of
    equal size are sorted by their first row, the last first. Each group goes to train if it fits, otherwise to val if
    it fits, otherwise to test. Molecules without a ring share the empty scaffold.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for row, scaffold in enumerate(scaffolds):
        groups[scaffold].append(row)
    up_to_train = fractions[0] * len(scaffolds) + 1e-9
    up_to_val = (fractions[0] + fractions[1]) * len(scaffolds) + 1e-9
    rows: dict[str, list[int]] = {split: [] for split in SPLITS}
    for group in sorted(groups.values(), key=lambda group: (len(group), group[0]), reverse=True):
        if len(rows["train"]) + len(group) <= up_to_train:
            rows["train"] += group
        elif len(rows["train"]) + len(rows["val"]) + len(group) <= up_to_val:
            rows["val"] += group
        else:
            rows["test"] += group
    return {split: sorted(part) for split, part in rows.items()}


def find_scaffold(smiles: str) -> str:
    """Return the Bemis-Murcko scaffold (rings and their linkers) of a molecule as SMILES, without chirality.

    Raises DataError if `smiles` is not a molecule.
    """
    from rdkit import rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    try:
        with rdBase.BlockLogs():
            return MurckoScaffoldSmiles(smiles=smiles, includeChirality=False)
    except (RuntimeError, ValueError) as err:
        raise DataError(f"{show_smiles(smiles)} has no Bemis-Murcko scaffold: {err}") from err


def check_split(rows: dict[str, list[int]], how: str) -> None:
    """Raise DataError if a split is empty."""
    empty = [split for split in SPLITS if not rows[split]]
    if empty:
        sizes = ", ".join(f"{split} {len(rows[split]):,}" for split in SPLITS)
        raise DataError(f"the {how} split has no molecules in {' and '.join(empty)} ({sizes})")
