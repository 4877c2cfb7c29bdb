"""From a folder of runs to the files of a report, through the script as people call it."""

import csv
import json
import runpy
import sys
from pathlib import Path

import pytest
from records import record, write_pair, write_run
from unprivileged import as_nobody

from graphgps_spse.bench.collect import collect_runs
from graphgps_spse.bench.report import make_report

ROOT = Path(__file__).resolve().parents[2]
WALKS, PATHS = [0.30, 0.31, 0.32], [0.20, 0.22, 0.21]


@pytest.fixture
def call(monkeypatch, capsys):
    """Runs the script in this process: exit code, output and errors."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["report.py", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(ROOT / "scripts/report.py"), run_name="__main__")
        return left.value.code, *capsys.readouterr()

    return run


def rows_of(path):
    return list(csv.DictReader(path.open()))


def test_files_hold_every_digit(tmp_path):
    write_pair(tmp_path / "results", WALKS, PATHS)
    report, paths = make_report(tmp_path / "results", tmp_path / "out")
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.md", "report.html", "table.tex", "table.csv", "overview.png", "overview.pdf"} <= {
        p.name for p in paths
    }
    (pair,) = rows_of(tmp_path / "out/pairs.csv")
    assert float(pair["student_p"]) == report.pairs[0].comparison.student_p and pair["gain"] == "True"
    walks, paths_row = rows_of(tmp_path / "out/cells.csv")
    assert (walks["cell"], walks["n"], walks["intended"], walks["expected_mean"]) == ("zinc-RWSE", "3", "3", "")
    assert float(paths_row["mean"]) == report.cells[1].summary.mean
    seeds = rows_of(tmp_path / "out/seeds.csv")
    assert [float(row["score"]) for row in seeds] == WALKS + PATHS
    table = {row["model"]: row for row in rows_of(tmp_path / "out/table.csv")}
    assert table["GRIT-SPSE"]["ZINC marks"] == "better **" and table["GRIT-RWSE"]["ZINC marks"] == ""
    assert table["GraphViT"]["ZINC marks"] == "second"
    assert table["GRIT-SPSE"]["ZINC"] == "0.210" and table["GCN"]["source"].startswith("Kipf")


def test_script_reports_what_it_can_and_names_the_rest(call, tmp_path):
    write_pair(tmp_path / "results", WALKS, PATHS)
    folder = write_run(tmp_path / "results", record(0.1, 3, name="zinc-SPSE"))
    (folder / "result.json").write_text(json.dumps({"schema": 1, "half": "written"})[:-9])
    code, out, err = call(tmp_path / "results", "--out", tmp_path / "out", "--no-literature")
    assert code == 0, err
    assert "| zinc-SPSE | ZINC | GRIT | SPSE | - | 3/4 |" in out and r"gain \*\*" in out
    assert "not used: " in err and "zinc-SPSE/3/result.json cannot be read" in err
    assert "GCN" not in (tmp_path / "out/report.md").read_text()
    assert "3/result.json cannot be read" in (tmp_path / "out/report.md").read_text()


def test_a_report_over_nothing_is_an_error(call, tmp_path):
    code, out, err = call(tmp_path, "--out", tmp_path / "out")
    assert code == 2 and "error: no NAME/SEED/result.json below" in err
    assert not (tmp_path / "out").exists() and not out


def test_a_path_that_cannot_be_used_is_named(call, open_folder):
    results, closed = open_folder / "results", open_folder / "closed"
    write_pair(results, WALKS, PATHS)
    (open_folder / "file").write_text("")
    closed.mkdir()
    closed.chmod(0)
    long = open_folder / ("x" * 300)
    for source, out, words in (
        (results, long, f"{long}: cannot be written (File name too long); choose another --out"),
        (
            results,
            open_folder / "file",
            f"{open_folder / 'file'}: cannot be written (File exists); choose another --out",
        ),
        (long, open_folder / "out", f"{long}: cannot be read (File name too long)"),
    ):
        code, _, err = call(source, "--out", out)
        assert code == 2 and words in err and err.count("\n") == 1, err
    assert "/closed/out: cannot be written (Permission denied)" in as_nobody(
        lambda: make_report(results, closed / "out")
    )
    assert "/closed/x: cannot be read (Permission denied)" in as_nobody(
        lambda: make_report(closed / "x", open_folder / "o")
    )


def test_runs_that_cannot_be_read_are_problems_and_no_end(open_folder):
    write_pair(open_folder / "results", WALKS, PATHS)
    for k, mode in enumerate((0o000, 0o444, 0o111)):  # closed; listed but closed; open but not listed
        (open_folder / f"results/zinc-SPSE/{k}").chmod(mode)
    problems = as_nobody(lambda: collect_runs(open_folder / "results").problems)
    assert problems.count("cannot be read (Permission denied)") == 3, problems


def test_paper_and_nothing_to_do(call):
    code, out, _ = call("--paper")
    assert code == 0 and "2 stars differ" in out
    code, _, err = call()
    assert code == 2 and "name the folder of results, or --paper" in err
