"""Duplicates and unusual molecules, by hand."""

import numpy as np
import pytest

from graphgps_spse.data.molecule_checks import KINDS, MoleculeChecks, examine_molecule, largest_fragment, show_rows
from graphgps_spse.data.molecules import read_mol


@pytest.mark.parametrize(
    ("smiles", "canonical", "kinds"),
    [
        ("OCC", "CCO", ()),
        ("C1=CC=CC=C1", "c1ccccc1", ()),
        ("[CH3:7][OH:2]", "CO", ()),  # atom map numbers are labels, not chemistry
        ("N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O", ()),
        ("[Na+].[Cl-]", "[Cl-].[Na+]", ("mixture", "metal")),
        ("CCO.O", "CCO.O", ("mixture",)),
        ("*C", "*C", ("wildcard",)),
        ("[2H]O[2H]", "[2H]O[2H]", ("isotope",)),
        ("[13*]C", "[13*]C", ("wildcard", "isotope")),
        ("C[Si](C)(C)C", "C[Si](C)(C)C", ()),
        ("C[As](C)C", "C[As](C)C", ()),
        ("[SnH4]", "[SnH4]", ("metal",)),
        ("[U]", "[U]", ("metal",)),
    ],
)
def test_examined_molecules(smiles, canonical, kinds):
    assert examine_molecule(read_mol(smiles)) == (canonical, kinds)
    assert set(kinds) <= set(KINDS)


@pytest.mark.parametrize(
    ("smiles", "largest"),
    [
        ("CC(=O)[O-].[Na+]", "CC(=O)[O-]"),
        ("Cl.OCCO.Cl", "OCCO"),
        ("CCCCCC.c1ccccc1", "CCCCCC"),  # six atoms each; hydrogens count
        ("[Na+].[K+]", "[K+]"),  # of equal sizes the heavier
        ("OCC", "OCC"),  # unchanged, not canonical
        ("C1CC.C", "C1CC.C"),  # not a molecule: left to the reader, which gives the reason
    ],
)
def test_largest_fragment(smiles, largest):
    assert largest_fragment(smiles) == largest


def test_copies_conflicts_and_splits_are_counted():
    smiles = ["CCO", "C", "OCC", "[CH4]", "CN", "C(C)O"]
    nan = np.nan
    targets = np.array([(1.0, 0.0), (5.0, nan), (1.0, nan), (nan, 2.0), (3.0, 3.0), (1.5, 0.0)])
    canonical = np.array([examine_molecule(read_mol(text)).canonical for text in smiles])
    checks = MoleculeChecks(np.array([2, 3, 4, 5, 6, 9]), smiles, targets, canonical, kinds={})
    assert checks.duplicates == [[0, 2, 5], [1, 3]] and checks.copies == {2: 0, 5: 0, 3: 1}
    assert checks.describe_duplicates() == (  # methane has no target that both rows know
        "2 molecules have several rows by canonical SMILES, 5 rows in all (for example rows 2, 4 and 9), "
        "1 with different targets"
    )
    splits = {"train": [0, 2, 5, 1], "val": [4], "test": [3]}
    assert checks.describe_duplicates(splits).endswith(", 1 in more than one split")
    assert [(row.number, row.reason) for row in checks.remarks()] == [
        (4, "same molecule as row 2"),
        (5, "same molecule as row 3"),
        (9, "same molecule as row 2"),
    ]
    assert checks.describe_unusual() == []


def test_rows_in_messages():
    assert show_rows([3]) == "row 3" and show_rows([3, 8]) == "rows 3 and 8"
    assert show_rows([3, 8, 9, 12, 14]) == "rows 3, 8, 9, 12 and 14"
    assert show_rows([*range(1200)]) == "rows 0, 1, 2, 3, 4 and 1,195 more"
