"""Checks of command-line arguments that several scripts share."""

import argparse
import tempfile
from pathlib import Path


def at_least_one(text: str) -> int:
    """Argument type for integers of at least 1. Raises ArgumentTypeError for other texts."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer of at least 1")
    return number


def check_out(parser: argparse.ArgumentParser, path: Path) -> None:
    """Exit with a usage error if `path`, the value of --out, cannot be written. Missing parent folders are created."""
    problem = "it is a folder"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            if not path.is_dir():
                return
    except OSError as err:
        problem = str(err.strerror)
    parser.error(f"--out: {path} cannot be written ({problem})")
