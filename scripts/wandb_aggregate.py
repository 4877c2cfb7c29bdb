"""Send W&B an aggregate run per group: python scripts/wandb_aggregate.py results --project graphgps_spse.

Mean, sample deviation and t-tests over seeds, computed from the result.json records alone: the runs themselves need not
have been in W&B. Sent again, it replaces what was sent before. docs/wandb.md says what to do with it.
"""

import argparse
import sys
from pathlib import Path

from graphgps_spse.bench.markdown import leftovers
from graphgps_spse.bench.wandb_aggregate import MODES, read_aggregates, send
from graphgps_spse.errors import SPSEError


def main() -> int:
    """Read, send, and say what was sent and what could not be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder that holds NAME/SEED/result.json at any depth")
    parser.add_argument("--project", default="graphgps_spse", help="as in wandb.project, default: graphgps_spse")
    parser.add_argument("--entity", default="", help="user or team, as in wandb.entity")
    parser.add_argument("--mode", choices=MODES, default="online", help="offline writes to RESULTS/wandb, to be synced")
    arguments = parser.parse_args()
    try:
        aggregates, report = read_aggregates(arguments.results)
        for title, lines in leftovers(report):
            for line in lines:
                print(f"{title.lower()}: {line}", file=sys.stderr)
        send(
            aggregates,
            project=arguments.project,
            entity=arguments.entity,
            mode=arguments.mode,
            folder=arguments.results,
        )
    except SPSEError as err:
        print(f"error: {err}", file=sys.stderr)
        return err.exit_code
    for one in aggregates:
        mean, std = one.numbers["best_test_perf_mean"], one.numbers.get("best_test_perf_std")
        print(f"{one.group}: {mean:.6g}" + ("" if std is None else f" ± {std:.2g}") + f" ({one.texts['seeds_done']})")
    if arguments.mode == "offline":
        print(f"later: wandb sync {arguments.results / 'wandb'}/offline-run-*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
