"""Which molecules train, which validate, which test: at random, or by scaffold as MoleculeNet and OGB split."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from graphgps_spse.data.molecules import show_smiles
from graphgps_spse.errors import DataError
from graphgps_spse.seeding import derive_seed

SPLITS = ("train", "val", "test")


def split_at_random(num_rows: int, fractions: Sequence[float], seed: int) -> dict[str, list[int]]:
    """Return the rows of each split, ascending; sizes are the fractions of `num_rows`, rounded down but for train."""
    num_val, num_test = (math.floor(fraction * num_rows + 1e-9) for fraction in fractions[1:])
    order = np.random.default_rng(derive_seed(seed, "smiles", "split")).permutation(num_rows)
    parts = np.split(order, [num_rows - num_val - num_test, num_rows - num_test])
    return {split: sorted(part.tolist()) for split, part in zip(SPLITS, parts)}


def split_by_scaffold(scaffolds: Sequence[str], fractions: Sequence[float]) -> dict[str, list[int]]:
    """Return the rows of each split, ascending, no scaffold being in two splits.

    The custom of MoleculeNet (Wu et al. 2018): groups of one scaffold, the largest first and of equal size the one
    whose first row is later, go to train as long as they fit, else to val as long as they fit, else to test.
    Molecules without a ring share the empty scaffold.
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
    """Return the Bemis-Murcko scaffold of a molecule (its rings and what links them) as SMILES, without chirality.

    Raises DataError for what is no molecule.
    """
    from rdkit import rdBase
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    try:
        with rdBase.BlockLogs():
            return MurckoScaffoldSmiles(smiles=smiles, includeChirality=False)
    except (RuntimeError, ValueError) as err:
        raise DataError(f"{show_smiles(smiles)} has no Bemis-Murcko scaffold: {err}") from err


def check_split(rows: dict[str, list[int]], how: str) -> None:
    """Raise DataError where a split is empty."""
    empty = [split for split in SPLITS if not rows[split]]
    if empty:
        sizes = ", ".join(f"{split} {len(rows[split]):,}" for split in SPLITS)
        raise DataError(f"the {how} split leaves no molecules for {' and '.join(empty)} ({sizes})")
