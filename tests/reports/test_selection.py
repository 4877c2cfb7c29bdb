"""Choosing a configuration: by validation, whatever test says."""

import json
import math

from records import record, write_run
from scripts_at import load_script

from graphgps_spse.files import with_digest
from graphgps_spse.reports.cells import Cell
from graphgps_spse.reports.collect import RecordedRun
from graphgps_spse.reports.selection import describe_best, rank_on_validation
from graphgps_spse.sweeps.manifest import SCHEMA


def cell(label, val, test, **changes):
    return Cell(label, (RecordedRun(record(test, 0, val=val, **changes), None),), {})


def test_each_data_set_and_direction_has_its_own_ranking():
    accuracy = {"dataset": "Cycles", "metric": "accuracy", "direction": "max"}
    cells = [
        *(cell("a", 0.3, 0.1), cell("b", 0.2, 0.9), cell("c", 0.4, 0.0)),
        *(cell("d", 0.6, 0.1, **accuracy), cell("e", 0.7, 0.0, **accuracy)),
    ]
    assert [[c.label for c in ranking] for ranking in rank_on_validation(cells)] == [["b", "a", "c"], ["e", "d"]]
    first, second = describe_best(cells)
    assert first.startswith("ZINC: b is the best of 3 configurations: mae 0.200 on validation, 0.900")
    assert second.startswith("Cycles: e is the best of 2 configurations: accuracy 0.7000 on validation, 0.0")


def test_what_has_no_validation_score_is_never_chosen():
    cells = [cell("broken", math.nan, 0.0), cell("sound", 0.5, 0.4)]
    assert [c.label for c in rank_on_validation(cells)[0]] == ["sound", "broken"]
    assert describe_best(cells[:1]) == ["ZINC: no configuration has a finite mae on validation"]
    assert describe_best(cells[1:])[0].startswith("ZINC: sound is the only configuration: ")


def test_runs_without_test_are_selected_and_are_not_called_missing(tmp_path, capsys):
    script = load_script("report")
    names = ["small", "large"]
    for name, val in zip(names, (0.4, 0.3)):
        trial = record(val=val, name=name, config={"train.evaluate_test": False, "width": name})
        del trial.best["test"]
        write_run(tmp_path, trial)
    planned = [{"dir": f"{name}/0", "sweeps": ["widths"]} for name in names]
    (tmp_path / "sweep.json").write_text(json.dumps(with_digest({"schema": SCHEMA, "runs": planned})))
    assert script.main([str(tmp_path), "--select", "val"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(
        "ZINC: large is the best of 2 configurations: mae 0.300 on validation, test not evaluated (1/1"
    )
    assert "not started" not in err
    write_run(tmp_path, record(0.2, val=0.2, name="with-test"))
    assert script.main([str(tmp_path), "--select", "val"]) == 0
    assert (
        "with-test is the best of 3 configurations: mae 0.200 on validation, 0.200 on test" in capsys.readouterr().out
    )
    assert script.main([str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    assert "2 runs did not evaluate test (train.evaluate_test=False) and were left out" in capsys.readouterr().err
