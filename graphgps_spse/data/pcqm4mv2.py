"""PCQM4Mv2 (Hu et al. 2021): the HOMO-LUMO gap of 3.7 million molecules, from OGB's own files.

OGB's SMILES are turned once into a folder of memory-mapped arrays beside them, one part after the other, so neither
this nor training holds the molecules in memory. OGB's processed file, a pickle, is never opened.
"""

import io
import logging
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphgps_spse.data.base import DatasetSpec, GraphDataset, InputSpec
from graphgps_spse.data.flat import FlatWriter, load_flat, make_once
from graphgps_spse.data.molecules import NUM_ATOM_COLUMNS, NUM_BOND_COLUMNS, featurise_many
from graphgps_spse.data.unpickle import as_array, read_torch
from graphgps_spse.errors import DataError

log = logging.getLogger(__name__)

NUM_TRAIN = 3_378_606
"""Molecules of OGB's training split, of which GraphGPS keeps the first NUM_VAL of a permutation for validation."""
NUM_VAL = 150_000
TEST_SPLITS = ("test-dev", "test-challenge")

_URL = "https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/pcqm4m-v2.zip"
_PARTS = ("train", "val", "valid", *TEST_SPLITS)
_BLOCK = 1 << 14
_SECONDS_BETWEEN_LINES = 60

Block = dict[str, np.ndarray]
"""What FlatWriter.append takes of some graphs."""


class PCQM4Mv2:
    """The splits of GraphGPS: OGB's labelled validation split is the test split.

    "full": OGB's training split, permuted by numpy's default_rng(42); its first 150,000 are the validation split.
    "subset": the first tenth of what is left for training and the first 50,000 of that validation split.
    "inference": OGB's valid, test-dev and test-challenge; the targets of the latter two are unknown.
    """

    kinds = ("full", "subset", "inference")

    def __init__(self, *, root: Path, kind: str, num_workers: int = 1) -> None:
        """`root` is the folder that OGB's classes are given; `num_workers` processes turn SMILES into graphs."""
        self.folder, self.kind, self.num_workers = root / "pcqm4m-v2", kind, num_workers
        self.spec = DatasetSpec(
            name="PCQM4Mv2-subset" if kind == "subset" else "PCQM4Mv2",
            level="graph",
            task="regression",
            num_targets=1,
            num_classes=0,
            metric="mae",
            node_input=InputSpec("ogb", NUM_ATOM_COLUMNS),
            edge_input=InputSpec("ogb", NUM_BOND_COLUMNS),
            target_names=("homolumogap",),
            may_miss_targets=kind == "inference",
        )

    def load(self) -> dict[str, GraphDataset]:
        """Map the splits, and at first download and write them. Raises DataError with a way out."""
        flat = self.folder / "flat"
        make_once(flat, self._write)
        if self.kind == "inference":
            valid = replace(load_flat(flat / "valid"), split="valid", kept_fingerprint="")
            return {"valid": valid} | {part: load_flat(flat / part) for part in TEST_SPLITS}
        splits = {"train": load_flat(flat / "train"), "val": load_flat(flat / "val"), "test": load_flat(flat / "valid")}
        if self.kind == "full":
            return splits
        splits["train"] = load_flat(flat / "train", num_graphs=max(1, len(splits["train"]) // 10))
        splits["val"] = load_flat(flat / "val", num_graphs=max(1, len(splits["val"]) // 3))
        return {split: replace(graphs, name=self.spec.name, kept_fingerprint="") for split, graphs in splits.items()}

    def _write(self, path: Path) -> None:
        self._require_files()
        parts = split_parts(read_split(self.folder / "split_dict.pt"))
        num_graphs, started = sum(map(len, parts.values())), time.perf_counter()
        source = _Smiles(self.folder / "raw" / "data.csv.gz", self.num_workers)
        missing = [part for part, rows in parts.items() if len(rows) and int(rows.max()) >= len(source)]
        if missing:
            raise DataError(f"{self.folder}: split_dict.pt names more molecules in {missing[0]} than {source.path} has")
        log.info(
            "PCQM4Mv2: writing %s graphs of %s into %s, once", f"{num_graphs:,}", source.path, self.folder / "flat"
        )
        progress = _Progress(num_graphs)
        for part, rows in parts.items():
            writer = FlatWriter(path / part)
            for block in source.blocks(rows):
                writer.append(**block)
                progress(len(block["sizes"]))
            split = "test" if part == "valid" else part
            writer.close(name="PCQM4Mv2", split=split, may_miss_targets=part in TEST_SPLITS)
        log.info("PCQM4Mv2: wrote them in %.0f s", time.perf_counter() - started)

    def _require_files(self) -> None:
        """Have OGB's own class download what is missing. It asks questions, which nobody answers in a batch job."""
        needed = [self.folder / "raw" / "data.csv.gz", self.folder / "split_dict.pt"]
        by_hand = (
            f"Without a connection, or to answer OGB's questions, fetch {_URL} by hand and unpack it in "
            f"{self.folder.parent}, so that {needed[0]} and {needed[1]} are there"
        )
        if all(path.is_file() for path in needed):
            return
        if self.folder.is_dir() and any(path.name != ".flat.lock" for path in self.folder.iterdir()):
            lacking = ", ".join(str(path) for path in needed if not path.is_file())
            raise DataError(f"PCQM4Mv2: {self.folder} lacks {lacking}. {by_hand}")
        try:
            download_with_ogb(self.folder.parent)
        except (OSError, RuntimeError, zipfile.BadZipFile) as err:
            raise DataError(f"PCQM4Mv2: download failed ({err}). {by_hand}") from err
        except EOFError as err:
            raise DataError(f"PCQM4Mv2: OGB's loader asks before it downloads. {by_hand}") from err


def download_with_ogb(root: Path) -> None:
    """Download and unpack OGB's files under `root`. Raises EOFError where OGB would ask the user."""
    from ogb.utils.url import decide_download, download_url, extract_zip

    with _no_answers(), redirect_stdout(sys.stderr):
        decide_download(_URL)
        archive = Path(download_url(_URL, str(root)))
        extract_zip(str(archive), str(root))
        archive.unlink()


@contextmanager
def _no_answers() -> Iterator[None]:
    """Make input() raise EOFError instead of waiting."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        yield
    finally:
        sys.stdin = stdin


def read_split(path: Path) -> dict[str, np.ndarray]:
    """Return OGB's split_dict.pt: rows of train, valid, test-dev and test-challenge. Runs no code of the file."""
    split = read_torch(path)
    try:
        return {part: np.asarray(as_array(split[part])).astype(np.int64) for part in ("train", "valid", *TEST_SPLITS)}
    except (LookupError, TypeError, ValueError, AttributeError) as err:
        raise DataError(f"{path} is not OGB's split of PCQM4Mv2 ({type(err).__name__}: {err})") from err


def split_parts(split: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the rows of the parts in which the molecules are kept, in their order.

    A file with fewer molecules than OGB's gives the same share of them to validation.
    """
    train = np.random.default_rng(42).permutation(split["train"])
    num_val = max(1, len(train) * NUM_VAL // NUM_TRAIN)
    if len(train) != NUM_TRAIN:
        log.warning("PCQM4Mv2 has %s training molecules, and this split %s", f"{NUM_TRAIN:,}", f"{len(train):,}")
    return {"train": train[num_val:], "val": train[:num_val]} | {part: split[part] for part in _PARTS[2:]}


def write_submission(predictions: dict[str, Any], folder: Path) -> list[Path]:
    """Write the files that OGB's leaderboard takes, and return them.

    `predictions` holds the gaps in eV of "test-dev" or "test-challenge" or both, [G] or [G, 1], in the order of the
    split. Raises DataError for any other split, number of molecules, or a value that is not finite.
    """
    from ogb.lsc import PCQM4Mv2Evaluator

    files = []
    for part, values in predictions.items():
        if part not in TEST_SPLITS:
            raise DataError(f"'{part}' is not submitted; OGB takes {' and '.join(TEST_SPLITS)}")
        gap_G = np.asarray(values, dtype=np.float32).reshape(-1)
        if not np.isfinite(gap_G).all():
            raise DataError(f"{part}: the prediction of molecule {int((~np.isfinite(gap_G)).argmax())} is not finite")
        try:
            PCQM4Mv2Evaluator().save_test_submission({"y_pred": gap_G}, str(folder), part)
        except AssertionError:  # how OGB says that the number is wrong
            raise DataError(f"{part}: {len(gap_G):,} predictions are not as many as OGB expects of it") from None
        files.append(folder / f"y_pred_pcqm4m-v2_{part}.npz")
    return files


class _Progress:
    """A line now and then that says how far it is."""

    def __init__(self, num_graphs: int) -> None:
        self.num_graphs, self.done, self.said = num_graphs, 0, time.perf_counter()
        self.started = self.said

    def __call__(self, more: int) -> None:
        self.done, now = self.done + more, time.perf_counter()
        if now - self.said > _SECONDS_BETWEEN_LINES:
            left = (now - self.started) / self.done * (self.num_graphs - self.done)
            log.info("PCQM4Mv2: %s of %s graphs, %.0f s left", f"{self.done:,}", f"{self.num_graphs:,}", left)
            self.said = now


class _Smiles:
    """The molecules of OGB's data.csv.gz."""

    def __init__(self, path: Path, num_workers: int) -> None:
        from pyarrow import ArrowInvalid, csv, float64, string

        self.path, self.num_workers = path, num_workers
        types = {"smiles": string(), "homolumogap": float64()}
        columns = csv.ConvertOptions(include_columns=list(types), column_types=types)
        try:
            table = csv.read_csv(path, convert_options=columns)
        except (OSError, ArrowInvalid, KeyError) as err:
            raise DataError(f"{path} is not OGB's table of SMILES and gaps: {err}") from err
        self._smiles = table["smiles"].combine_chunks()
        self._gap_G = table["homolumogap"].to_numpy().astype(np.float32)

    def __len__(self) -> int:
        return len(self._gap_G)

    def blocks(self, rows: np.ndarray) -> Iterator[Block]:
        """Yield the graphs of some rows in their order."""
        for block in featurise_many(self._texts(rows), num_workers=self.num_workers):
            for place, reason in block.bad:
                raise DataError(f"{self.path}, molecule {rows[place]}: {reason}")
            arrays = block._asdict()
            gap_G = self._gap_G[rows[block.rows]]
            yield {key: arrays[key] for key in ("sizes", "num_edges", "x", "edge_index", "edge_attr")} | {
                "y": gap_G[:, None]
            }

    def _texts(self, rows: np.ndarray) -> Iterator[Any]:
        for first in range(0, len(rows), _BLOCK):
            yield from self._smiles.take(rows[first : first + _BLOCK]).to_pylist()
