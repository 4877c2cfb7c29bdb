"""Tables of the studies of gradient-boosted trees in docs/results.md, from their records.

    python benchmarks/tree_tables.py benchmarks/results/trees.json --runs results    # add finished runs
    python benchmarks/tree_tables.py benchmarks/results/trees.json                   # print the tables of the record

The first table has the test scores, mean ± sample standard deviation over seeds, and the number of seeds. The second
has the comparisons of the design: Welch's two-sided t-test, and Holm's correction over all comparisons of a study.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphgps_spse.files import write_json
from graphgps_spse.reports.markdown import format_p, markdown_table
from graphgps_spse.reports.stats import MIN_SEEDS, compare_scores, holm, summarize
from graphgps_spse.results import RunResult

FEATURES = ("fingerprints", "fingerprints+SPSE", "descriptors", "RRWP", "SPSE", "RRWP+SPSE")
METRICS = dict.fromkeys(("ESOL", "FreeSolv", "Lipophilicity"), "rmse") | dict.fromkeys(("BACE", "BBBP"), "auc")
METRICS["Peptides-func"] = "ap"
"""Data set -> the metric of its design."""
COMPARISONS = (("SPSE", "RRWP"), ("RRWP+SPSE", "RRWP"), ("fingerprints+SPSE", "fingerprints"))
STUDIES = (("Peptides-func",), ("ESOL", "FreeSolv", "Lipophilicity", "BACE", "BBBP"))
"""Data sets whose comparisons are corrected together."""

Scores = Mapping[tuple[str, str], Mapping[int, float]]
"""(data set, features) -> seed -> test score."""


@dataclass(frozen=True)
class Row:
    """One comparison of two kinds of features on one data set."""

    dataset: str
    first: str
    second: str
    num_seeds: tuple[int, int]
    difference: float
    p: float
    p_holm: float

    @property
    def verdict(self) -> str:
        """Better, worse or no effect, by the corrected p-value."""
        if self.p_holm > 0.05:
            return "no effect"
        return "better" if (self.difference < 0) == (METRICS[self.dataset] == "rmse") else "worse"


def add_runs(record: dict[str, Any], runs: Path) -> dict[str, Any]:
    """Add the finished runs in `runs`/NAME/SEED to a record: what they trained on, and their scores by seed.

    Seeds that the record already has stay in it. Raises AssertionError for a run of another configuration or data.
    """
    for path in sorted(runs.glob("*/*/result.json")):
        result = RunResult.read(path)
        metric, environment = METRICS[result.dataset], result.environment
        cell = record.setdefault(
            result.name,
            {
                "dataset": result.dataset,
                "features": result.encoding,
                "metric": metric,
                "config_hash": result.config_hash,
                "fingerprints": result.fingerprints,
                "commits": [],
                "versions": {name: environment[name] for name in ("python", "torch", "numpy") if name in environment},
                "scores": {},
            },
        )
        assert (cell["config_hash"], cell["fingerprints"]) == (result.config_hash, result.fingerprints), path
        cell["commits"] = sorted({*cell["commits"], environment["commit"]})
        cell["scores"][str(result.seed)] = {split: result.best[split][metric] for split in ("train", "val", "test")}
    return record


def read_scores(record: Mapping[str, Any]) -> Scores:
    """Return the test scores of a record."""
    return {
        (cell["dataset"], cell["features"]): {int(seed): score["test"] for seed, score in cell["scores"].items()}
        for cell in record.values()
    }


def compare(scores: Scores, datasets: Sequence[str]) -> list[Row]:
    """Return the comparisons of one study for which there are records of both sides."""
    cases = [
        (dataset, first, second)
        for dataset in datasets
        for first, second in COMPARISONS
        if min(len(scores.get((dataset, features), ())) for features in (first, second)) >= MIN_SEEDS
    ]
    found = [compare_scores(scores[dataset, second], scores[dataset, first]) for dataset, first, second in cases]
    corrected = holm([comparison.welch_p for comparison in found])
    return [
        Row(*case, (comparison.n[1], comparison.n[0]), comparison.difference, comparison.welch_p, p)
        for case, comparison, p in zip(cases, found, corrected)
    ]


def tables(scores: Scores, datasets: Sequence[str]) -> Iterator[str]:
    """Yield the two tables of one study as Markdown."""
    known = [dataset for dataset in datasets if any(key[0] == dataset for key in scores)]
    head = ["features", *(f"{dataset}, {METRICS[dataset]}" for dataset in known)]
    rows = [[features, *(_cell(scores.get((dataset, features), {})) for dataset in known)] for features in FEATURES]
    yield "\n".join(markdown_table(head, [row for row in rows if any(cell != "-" for cell in row[1:])]))
    head = ["data set", "comparison", "seeds", "difference", "welch", "holm", "finding"]
    lines = [
        [
            row.dataset,
            f"{row.first} - {row.second}",
            f"{row.num_seeds[0]}, {row.num_seeds[1]}",
            f"{row.difference:+.4f}",
            format_p(row.p),
            format_p(row.p_holm),
            row.verdict,
        ]
        for row in compare(scores, datasets)
    ]
    yield "\n".join(markdown_table(head, lines))


def _cell(by_seed: Mapping[int, float]) -> str:
    if not by_seed:
        return "-"
    summary = summarize(list(by_seed.values()))
    return f"{summary.mean:.4f} ± {summary.std:.4f} ({summary.n})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="JSON file of scores")
    parser.add_argument("--runs", type=Path, help="folder of runs, whose results are added to the record")
    args = parser.parse_args()
    if args.runs:
        known = json.loads(args.record.read_text()) if args.record.exists() else {}
        write_json(args.record, add_runs(known, args.runs))
    for study in STUDIES:
        print(*tables(read_scores(json.loads(args.record.read_text())), study), sep="\n\n", end="\n\n")
