"""Cross-validations in a report: means over folds, by hand."""

import pytest
from records import record, write_run

from graphgps_spse.reports.collect import collect_runs
from graphgps_spse.reports.comparison import build_report
from graphgps_spse.reports.folds import cross_validations
from graphgps_spse.reports.markdown import fold_rows, report_text
from graphgps_spse.reports.page import report_page
from graphgps_spse.reports.selection import describe_best
from graphgps_spse.reports.table import build_table


def write_fold(root, name, fold, scores, **config):
    """A fold with a run for each score; 0 is the neutral value of a key, and so absent from a record."""
    keys = {"dataset.smiles.folds": 3, **config, **({"dataset.smiles.fold": fold} if fold else {})}
    for seed, score in enumerate(scores):
        result = record(
            score, seed, name=f"{name}-fold{fold}", dataset="mine", fingerprints={"train": f"f{fold}"}, config=keys
        )
        write_run(root, result)


@pytest.fixture
def report(tmp_path):
    for fold, scores in enumerate(([0.1, 0.3], [0.4, 0.4], [0.6, 0.6])):
        write_fold(tmp_path, "a", fold, scores)
    write_fold(tmp_path, "b", 0, [0.5], **{"gt.layers": 2})
    write_fold(tmp_path, "b", 1, [0.05], **{"gt.layers": 2})
    return build_report(collect_runs(tmp_path))


def test_the_mean_is_over_folds_and_not_over_runs(report):
    a, b = cross_validations(report.cells)
    assert (a.label, a.folds, b.label, b.folds) == ("a", "3/3", "b", "2/3")
    assert a.summary == (pytest.approx(0.4), pytest.approx(0.2), 3)
    assert fold_rows(report.cells)[1:] == [
        ["a", "mine", "3/3", "mae", "0.4000 ± 0.2000", "0.4000 ± 0.2000", "0.2000, 0.4000, 0.6000"],
        ["b", "mine", "2/3", "mae", "0.2750 ± 0.3182", "0.2750 ± 0.3182", "0.5000, 0.0500"],
    ]


def test_a_lucky_fold_is_not_the_best_configuration(report):
    """Fold 1 of b has the best score of all cells."""
    (line,) = describe_best(report.cells)
    assert line.startswith("mine: b is the best of 2 configurations: mae 0.2750 ± 0.3182 on validation")
    assert line.endswith("on test (2/2 seeds, 2/3 folds)")


def test_folds_are_in_the_report_and_no_note_says_that_their_data_differ(report):
    text, page = report_text(report, build_table(report)), report_page(report, build_table(report), {})
    assert "## Cross-validation" in text and "<h2>Cross-validation</h2>" in page
    assert "## Best on validation: mine, mae, 3 folds" in text
    assert not any("not run on the same data" in note for note in report.notes)


def test_without_folds_there_is_no_such_section(tmp_path):
    write_run(tmp_path, record())
    report = build_report(collect_runs(tmp_path))
    assert fold_rows(report.cells) == [] and "Cross-validation" not in report_text(report, build_table(report))


@pytest.mark.parametrize(("mode", "folds"), [({"dataset.split_mode": "cv-stratifiedkfold-4"}, "3/4"), ({}, "3/3")])
def test_splits_of_a_public_data_set_are_folds(tmp_path, mode, folds):
    for index, score in enumerate((0.2, 0.4, 0.9)):
        keys = mode | ({"dataset.split_index": index} if index else {})
        write_run(tmp_path, record(score, 0, name=f"mutag-split_index{index}", dataset="MUTAG", config=keys))
    write_run(tmp_path, record(0.1, 0, name="alone", dataset="MUTAG", config={"dataset.split_index": 2}))
    report = build_report(collect_runs(tmp_path))
    (found,) = cross_validations(report.cells)
    assert (found.label, found.folds, found.summary.mean) == ("mutag", folds, pytest.approx(0.5))
