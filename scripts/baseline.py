"""Train gradient-boosted trees on a configuration's data: python scripts/baseline.py --cfg configs/GRIT/zinc-SPSE.yaml.

The result has the form of a run's, so that reports show both. Needs LightGBM: pip install 'graphgps_spse[trees]'.
"""

import argparse
import sys
from collections.abc import Sequence

from graphgps_spse.command import run_command


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, or `words` in its place."""
    parser = argparse.ArgumentParser(description="Train gradient-boosted trees on tables made of a data set's graphs.")
    parser.add_argument("--cfg", required=True, metavar="FILE", help="configuration: its data set and pair encodings")
    parser.add_argument(
        "--features",
        default="encodings",
        metavar="KINDS",
        help="comma-separated: encodings (pooled), fingerprints (Morgan), descriptors (RDKit); default encodings",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="train the seeds seed .. seed+N-1")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="e.g. seed=3 posenc_SPSE.max_length=8")
    arguments = parser.parse_intermixed_args(words)
    if arguments.repeat < 1:
        parser.error(f"--repeat {arguments.repeat} is below 1")
    return arguments


def train(arguments: argparse.Namespace) -> None:
    """Train and record every seed; print their scores."""
    from graphgps_spse.baselines.trees import TreeOptions, load_tables, run_seed
    from graphgps_spse.config import load_config

    cfg = load_config(arguments.cfg, arguments.overrides)
    data = load_tables(cfg, arguments.features.split(","))
    cfg = cfg.with_values(name=f"{cfg.name}-trees-{data.name}")
    for seed in range(cfg.seed, cfg.seed + arguments.repeat):
        result = run_seed(cfg.with_values(seed=seed), data, TreeOptions())
        shown = ", ".join(f"{split} {result.best[split][result.metric]:.4f}" for split in ("train", "val", "test"))
        print(f"{result.name}, seed {seed}: {result.metric} {shown}; {result.seconds:.1f} s")


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line asks for and return the exit code."""
    arguments = parse_arguments(words)
    return run_command(lambda: train(arguments))


if __name__ == "__main__":
    sys.exit(main())
