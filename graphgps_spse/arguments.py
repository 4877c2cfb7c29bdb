"""Checks of command lines that scripts share, made before any work begins."""

import argparse
import tempfile
from pathlib import Path


def at_least_one(text: str) -> int:
    """Return the whole number of an argument, for `type=`. Raises ArgumentTypeError unless it is 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def check_out(parser: argparse.ArgumentParser, path: Path) -> None:
    """End with a usage error where no file can be written at `path`, the value of --out. Its folder is made."""
    problem = "it is a folder"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            if not path.is_dir():
                return
    except OSError as err:
        problem = str(err.strerror)
    parser.error(f"--out: {path} cannot be written ({problem})")
