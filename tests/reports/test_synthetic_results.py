"""What docs/synthetic.md says of the runs in benchmarks/results/synthetic is what their records say."""

import re
from pathlib import Path

from graphgps_spse.reports.collect import collect_runs
from graphgps_spse.reports.comparison import build_report
from graphgps_spse.reports.markdown import format_p

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_quotes_the_records():
    report = build_report(collect_runs(ROOT / "benchmarks/results/synthetic"))
    assert not report.refused and not report.absent
    assert [len(cell.runs) for cell in report.cells] == [3] * 12 and len(report.pairs) == 6
    rows = {}
    for line in (ROOT / "docs/synthetic.md").read_text().splitlines():
        match = re.match(r"\| (CSA|GRIT) (\d) \| (.*) \|$", line)
        if match:
            rows[f"{match[1]}-{match[2]}"] = match[3].split(" | ")
    assert len(rows) == len(report.pairs)
    for pair in report.pairs:
        c, row = pair.comparison, rows[pair.paths.stem.strip("/")]
        low, high = c.interval
        tests = [format_p(p) for p in (c.student_p, c.welch_p, c.paired_p, pair.holm_p)]
        scores = [cell.format(cell.summary) for cell in (pair.walks, pair.paths)]
        assert row == [*scores, f"{c.difference:+.3f}", f"{low:+.3f} to {high:+.3f}", *tests]
