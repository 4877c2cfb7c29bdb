"""Print the table of all finished runs and draw their figure: python scripts/report.py results --out report."""

import argparse
import sys
from pathlib import Path

from graphgps_spse.bench.report import draw_report, table_lines
from graphgps_spse.bench.results import find_results
from graphgps_spse.errors import SPSEError


def main() -> int:
    """Read the records, write report.md and report.png, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="folder that holds NAME/SEED/result.json")
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for report.md and report.png")
    arguments = parser.parse_args()
    try:
        results = find_results(arguments.results)
        if not results:
            print(
                f"error: no NAME/SEED/result.json in {arguments.results}; name the folder that holds NAME",
                file=sys.stderr,
            )
            return 2
        lines = table_lines(results)
        draw_report(results, arguments.results, arguments.out / "report.png")
        (arguments.out / "report.md").write_text("\n".join(lines) + "\n")
    except SPSEError as err:
        print(f"error: {err}", file=sys.stderr)
        return err.exit_code
    print("\n".join(lines))
    print(f"\ntable: {arguments.out / 'report.md'}\nfigure: {arguments.out / 'report.png'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
