"""The record of a run and its aggregate."""

import json
from dataclasses import replace

import pytest

from graphgps_spse.bench.results import RunResult, aggregate, find_results
from graphgps_spse.errors import DataError

RESULT = RunResult(
    name="exp", dataset="ZINC", model="GRIT", encoding="SPSE", seed=0, metric="mae", direction="min", best_epoch=3,
    best={split: {"mae": 0.1, "loss": 0.2} for split in ("train", "val", "test")}, epochs=5, seconds=1.0,
    seconds_per_epoch=0.2, num_params=473473, config_hash="c", fingerprints={}, encodings={},
    expected={}, environment={},
)  # fmt: skip


def write(folder, seed: int, mae: float, name: str = "exp") -> None:
    best = {split: {"mae": mae, "loss": 0.2} for split in ("train", "val", "test")}
    path = folder / name / str(seed)
    path.mkdir(parents=True)
    replace(RESULT, seed=seed, best=best, name=name).write(path / "result.json")


def test_round_trip_and_aggregate(tmp_path):
    write(tmp_path, 0, 0.1)
    write(tmp_path, 1, 0.3)
    results = find_results(tmp_path)
    assert [r.seed for r in results] == [0, 1] and results[1].score == 0.3
    for _ in range(2):  # idempotent
        aggregate(tmp_path / "exp")
        record = json.loads((tmp_path / "exp/agg/test/best.json").read_text())
        assert record["seeds"] == [0, 1]
        assert record["mae"] == pytest.approx(0.2) and record["mae_std"] == pytest.approx(0.1 * 2**0.5)


def test_damaged_and_foreign_records_are_named(tmp_path):
    write(tmp_path, 0, 0.1)
    path = tmp_path / "exp/0/result.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(DataError, match=r"exp/0/result\.json"):
        find_results(tmp_path)
    path.write_text('{"schema": 99}')
    with pytest.raises(DataError, match="schema 99"):
        find_results(tmp_path)


def test_seeds_of_two_configurations_are_not_averaged(tmp_path):
    write(tmp_path, 0, 0.1)
    write(tmp_path, 1, 0.3)
    path = tmp_path / "exp/1/result.json"
    replace(RunResult.read(path), config_hash="other").write(path)
    with pytest.raises(DataError, match="'exp' mixes runs that differ in config_hash"):
        aggregate(tmp_path / "exp")
    assert not (tmp_path / "exp/agg").exists()


def test_copied_record_is_named(tmp_path):
    write(tmp_path, 0, 0.1)
    (tmp_path / "exp/0").rename(tmp_path / "exp/7")
    with pytest.raises(DataError, match="record of exp/0"):
        find_results(tmp_path)
