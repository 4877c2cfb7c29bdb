"""Choosing a configuration: by validation, whatever test says."""

import math

from records import record

from graphgps_spse.reports.cells import Cell
from graphgps_spse.reports.collect import RecordedRun
from graphgps_spse.reports.selection import describe_best, rank_on_validation


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
