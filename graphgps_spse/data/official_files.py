"""Checks that raw files are those that their publishers list, before a file is opened.

official_files.csv lists files of public repositories by their git blob id, as `git ls-tree` prints it: the SHA-1 of
a header with the size, and of the content. PyTorch Geometric downloads the files from the same repositories. Publishers
of other data sets list no checksums.

- Planetoid: https://github.com/kimiyoung/planetoid, commit af6abf4
- WebKB, Actor, WikipediaNetwork: https://github.com/graphdml-uiuc-jlu/geom-gcn, commit f1fc0d1
- HeterophilousGraphDataset: https://github.com/yandex-research/heterophilous-graphs, commit a431395
"""

import csv
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from graphgps_spse.errors import DataError


@cache
def official_files() -> dict[tuple[str, str], str]:
    """Return data set and file name -> git blob id, for the files of which it is known."""
    with Path(__file__).with_suffix(".csv").open(newline="") as text:
        return {(row["data set"], row["file"]): row["git blob id"] for row in csv.DictReader(text)}


def blob_id(path: Path) -> str:
    """Return the git blob id of a file, 40 hexadecimal digits."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def check_official(name: str, folder: Path, files: Iterable[str], url: str) -> None:
    """Raise DataError for a file of the data set `name` that differs from the official one, if that is known."""
    for file in files:
        official = official_files().get((name, file))
        if official and (found := blob_id(folder / file)) != official:
            raise DataError(
                f"{name}: {folder / file} is refused: it is not the official file (git blob id {found}, official "
                f"{official}). Download the original from {url}. If you trust the source of this file, add "
                "dataset.trust_data=True to the command line; if the file holds code, it then runs with your "
                "permissions"
            )
