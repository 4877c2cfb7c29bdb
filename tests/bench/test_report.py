"""Tables and figures from records."""

import json
from dataclasses import replace

import pytest
from test_results import RESULT

from graphgps_spse.bench.report import draw_report, group_cells, table_lines
from graphgps_spse.bench.stats import student_t_test
from graphgps_spse.errors import DataError


def seeds(name: str, encoding: str, scores: list[float]) -> list:
    return [
        replace(
            RESULT, name=name, encoding=encoding, seed=seed, best={s: {"mae": score} for s in ("train", "val", "test")}
        )
        for seed, score in enumerate(scores)
    ]


def test_table_compares_with_the_first_encoding():
    walks, paths = [0.30, 0.31, 0.32], [0.20, 0.22, 0.21]
    lines = table_lines(seeds("b", "SPSE", paths) + seeds("a", "RRWP", walks))
    assert len(lines) == 4
    assert "| RRWP | 3 | mae | 0.3100 ± 0.0100 |  | 473,473 |" in lines[2]
    assert f"| SPSE | 3 | mae | 0.2100 ± 0.0100 | {student_t_test(walks, paths):.2g} | 473,473 |" in lines[3]
    assert "| b | ZINC | GRIT | SPSE |" in lines[3]
    few = table_lines(seeds("a", "RRWP", walks) + seeds("b", "SPSE", paths[:2]))
    assert "| SPSE | 2 | mae | 0.2100 ± 0.0141 |  |" in few[3]
    alone = table_lines(seeds("a", "RRWP", walks[:1]))
    assert "| RRWP | 1 | mae | 0.3000 |  |" in alone[2]


def test_mixed_runs_are_refused():
    runs = seeds("a", "RRWP", [0.3, 0.4])
    with pytest.raises(DataError, match="config_hash"):
        group_cells([runs[0], replace(runs[1], config_hash="other")])


def test_figure_is_drawn(tmp_path):
    runs = seeds("a", "RRWP", [0.3, 0.4, 0.5]) + seeds("b", "SPSE", [0.2])
    for run in runs:
        folder = tmp_path / run.name / str(run.seed) / "val"
        folder.mkdir(parents=True)
        (folder / "stats.json").write_text(
            "".join(json.dumps({"epoch": e, "mae": 1 / (e + 1)}) + "\n" for e in range(4))
        )
    draw_report(runs, tmp_path, tmp_path / "out" / "report.png")
    assert (tmp_path / "out" / "report.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
