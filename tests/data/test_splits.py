"""Splits of molecules: sizes by hand, scaffolds by hand, and a slow twin of the scaffold rule."""

import numpy as np
import pytest

from graphgps_spse.data.splits import check_split, find_scaffold, split_at_random, split_by_scaffold
from graphgps_spse.errors import DataError


def test_random_split_is_a_partition_that_the_seed_decides():
    splits = [split_at_random(103, (0.8, 0.1, 0.1), seed) for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]
    for rows in splits:
        assert {split: len(part) for split, part in rows.items()} == {"train": 83, "val": 10, "test": 10}
        assert sorted(sum(rows.values(), [])) == list(range(103)) and all(
            part == sorted(part) for part in rows.values()
        )


@pytest.mark.parametrize("num_rows", [10, 30, 70, 1000])
def test_fractions_of_ten_lose_nothing_to_rounding(num_rows):
    assert [len(part) for part in split_at_random(num_rows, (0.8, 0.1, 0.1), 0).values()] == [
        num_rows * 8 // 10,
        num_rows // 10,
        num_rows // 10,
    ]


def test_scaffolds_by_hand():
    """Rings and what links them; side chains and stereo are left out; molecules without rings share the empty one."""
    assert find_scaffold("CC(=O)Oc1ccccc1C(=O)O") == "c1ccccc1"
    assert find_scaffold("C[C@H]1CC[C@@H](O)CC1") == "C1CCCCC1"
    assert find_scaffold("OCCc1ccc(CCC2CC2)cc1") == "c1ccc(CCC2CC2)cc1"
    assert find_scaffold("CCO") == find_scaffold("[Na+].[Cl-]") == ""
    with pytest.raises(DataError, match="no Bemis-Murcko scaffold"):
        find_scaffold("C1CC")


def test_scaffold_split_by_hand():
    """Ten rows: a four times, b three times, c, d, e once. Train has room for six, train and val for eight.

    a goes to train (4), b no longer fits (7) and goes to val, e and d, later than c, fill train, c fits nowhere.
    """
    assert split_by_scaffold(list("babacadabe"), (0.6, 0.2, 0.2)) == {
        "train": [1, 3, 5, 6, 7, 9],
        "val": [0, 2, 8],
        "test": [4],
    }


def test_scaffold_split_against_its_slow_twin():
    """No scaffold is in two splits, train never outgrows its share, and the greedy rule is followed group by group."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        scaffolds = [str(s) for s in rng.integers(0, 12, 60)]
        rows = split_by_scaffold(scaffolds, (0.7, 0.2, 0.1))
        assert sorted(sum(rows.values(), [])) == list(range(60))
        names = sorted(set(scaffolds), key=lambda s: (-scaffolds.count(s), -scaffolds.index(s)))
        train, val = 0, 0
        for name in names:
            size = scaffolds.count(name)
            split = "train" if train + size <= 42 else "val" if train + val + size <= 54 else "test"
            train, val = train + size * (split == "train"), val + size * (split == "val")
            assert {s for s, part in rows.items() if any(scaffolds[row] == name for row in part)} == {split}


def test_empty_split_is_named():
    with pytest.raises(DataError, match=r"the scaffold split has no molecules in val and test \(train 1, val 0"):
        check_split({"train": [0], "val": [], "test": []}, "scaffold")
