"""The encodings of a data set's splits: in memory, from the store or on the fly, for runs and for scripts/encode.py."""

import logging
import shutil
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.encodings.base import MEMORY, ON_THE_FLY, Encoding, EncodingArrays, GraphArrays, Place
from graphgps_spse.encodings.on_the_fly import OnTheFly, select
from graphgps_spse.encodings.store import CountStore, StoreOptions
from graphgps_spse.encodings.units import as_duration, as_size
from graphgps_spse.errors import DataError
from graphgps_spse.memory import Memory, check_fits, find_memory

log = logging.getLogger(__name__)


def encode(
    splits: dict[str, GraphDataset], encodings: list[Encoding], num_threads: int, store: StoreOptions
) -> tuple[dict[str, GraphDataset], dict[str, Any]]:
    """Return the splits with every encoding, and a record of how each was made.

    Where an encoding goes is the choice of `Encoding.place`, unless `store.on_the_fly` has all computed in batches.
    Raises DataError for a graph, or arrays of a split, that this machine has no memory for.
    """
    records: dict[str, Any] = {}
    check_encodable(splits, encodings)
    memory, num_bytes = find_memory(), 0.0
    for encoding in encodings:
        num_graphs, started = sum(len(graphs) for graphs in splits.values()), time.perf_counter()
        with _progress_bar(encoding.name, num_graphs) as bar:
            for split, graphs in splits.items():
                place = _place(encoding, graphs, store)
                if place.where == ON_THE_FLY:
                    encoded, record = _encode_on_the_fly(encoding, graphs)
                    bar.update(len(graphs))
                else:
                    num_bytes += encoding.gib(_arrays(graphs)) * 2**30 if place.where == MEMORY else 0.0
                    check_arrays_fit(encoding, graphs, num_bytes, memory)
                    encoded, record = _encode_split(encoding, graphs, place, num_threads, store, bar)
                splits = {**splits, split: encoded}
                log.info("%s, %s: %s (%s)", encoding.name, split, place.where, place.reason)
                records.setdefault(encoding.name, {})[split] = record | {"place": place.where}
        seconds = time.perf_counter() - started
        log.info("%s of %s graphs in %.2f s, threads: %d", encoding.name, f"{num_graphs:,}", seconds, num_threads)
    return splits, records


def check_encodable(splits: dict[str, GraphDataset], encodings: Sequence[Encoding]) -> None:
    """Raise DataError where the largest graph of a split takes more memory to encode than there is."""
    memory = find_memory()
    for graphs in splits.values():
        graph, size = int(graphs.sizes_G.argmax()), int(graphs.sizes_G.max())
        where = f"{_where(graphs)}, graph {graph}: {size:,} nodes make {size**2:,} pairs"
        for encoding in encodings:
            num_bytes, most = encoding.bytes_of_graph(size), largest_graph(encoding, memory.total)
            fewer = encoding.size_key and num_bytes < memory.total * encoding.dim_pair
            check_fits(
                num_bytes,
                f"{where}, for which {encoding.name} takes",
                f"Cut the graph into parts of at most {most:,} nodes, "
                + (f"lower {encoding.size_key}, " if fewer else "")
                + "or use a model without pairs: model.type=GPSModel, gt.layer_type=GINE+None, no encoding",
                memory,
                DataError,
            )


def check_arrays_fit(encoding: Encoding, graphs: GraphDataset, num_bytes: float, memory: Memory) -> None:
    """Raise DataError where the arrays that a run keeps in memory, `num_bytes` up to this split, are more than it."""
    check_fits(
        num_bytes,
        f"{_where(graphs)}: with {encoding.name} the encodings that this run keeps in memory take",
        "Lower store.min_gib, or set dataset.pe_transform_on_the_fly=True: then rows are made as batches are built",
        memory,
        DataError,
    )


def largest_graph(encoding: Encoding, num_bytes: int) -> int:
    """Return the most nodes of a graph that `num_bytes` are enough to encode."""
    return bisect_right(range(1 << 40), num_bytes, key=encoding.bytes_of_graph) - 1


def estimate_stores(
    splits: dict[str, GraphDataset],
    encodings: list[Encoding],
    num_threads: int,
    store: StoreOptions,
    *,
    part: int = 1,
    num_parts: int = 1,
) -> None:
    """Log what `fill_stores` would take and what is already there; writes nothing."""
    for kept in _stores(splits, encodings, store):
        numbers = range(part - 1, len(kept), num_parts)
        there = set(kept.find_files())
        missing = [number for number in numbers if number not in there]
        log.info("%s: %d of %d shards are there, in %s", kept.name, len(there), len(kept), kept.path)
        if missing:
            log.info("%s: to count %s", kept.name, kept.describe(missing, num_threads))
    log.info("free in %s: %s", store.dir, as_size(_free_bytes(store.dir)))


def fill_stores(
    splits: dict[str, GraphDataset],
    encodings: list[Encoding],
    num_threads: int,
    store: StoreOptions,
    *,
    part: int = 1,
    num_parts: int = 1,
) -> None:
    """Count what the stores lack; of several parts, part 1, 2, .. does every `num_parts`-th shard."""
    for kept in _stores(splits, encodings, store):
        numbers, started = range(part - 1, len(kept), num_parts), time.perf_counter()
        with _progress_bar(kept.name, kept.num_graphs(numbers)) as bar, _naming(kept.name):
            kept.ensure(numbers, num_threads=num_threads, progress=bar.update)
        seconds = as_duration(time.perf_counter() - started)
        log.info("%s: %d of %d shards are there, after %s", kept.name, len(kept.find_files()), len(kept), seconds)


def check_arrays(encoding: Encoding, encoded: EncodingArrays, graphs: GraphArrays, split: str) -> None:
    """Raise DataError where an encoding breaks its own word: float32 arrays of one row a pair or node."""
    for what, array, rows, columns in (
        ("pair", encoded.pair, int(np.square(np.diff(graphs.node_ptr)).sum()), encoding.dim_pair),
        ("node", encoded.node, int(graphs.node_ptr[-1]), encoding.dim_node),
    ):
        found = ("no array", ()) if array is None else (str(array.dtype), array.shape)
        if found != (("float32", (rows, columns)) if columns else ("no array", ())):
            raise DataError(
                f"encoding {encoding.name}, {split} split: {what} must be float32 [{rows}, {columns}] "
                f"(no array where dim_{what} is 0), not {found[0]} {list(found[1])}"
            )


def _place(encoding: Encoding, graphs: GraphDataset, store: StoreOptions) -> Place:
    if store.on_the_fly:
        return Place(ON_THE_FLY, "dataset.pe_transform_on_the_fly")
    return encoding.place(_arrays(graphs), name=_name(graphs), store=store)


def _encode_split(
    encoding: Encoding, graphs: GraphDataset, place: Place, num_threads: int, store: StoreOptions, bar: tqdm
) -> tuple[GraphDataset, dict[str, Any]]:
    arrays = _arrays(graphs)
    arrays = arrays._replace(edge_index=np.ascontiguousarray(arrays.edge_index, dtype=np.int64))
    with _naming(_where(graphs)):
        encoded = encoding.provide(
            arrays, name=_name(graphs), place=place, store=store, num_threads=num_threads, progress=bar.update
        )
    check_arrays(encoding, encoded, arrays, graphs.split)
    pair, node = dict(graphs.pair), dict(graphs.node)
    if encoded.pair is not None:
        values = encoded.pair
        pair[encoding.name] = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if encoded.node is not None:
        node[encoding.name] = torch.from_numpy(encoded.node)
    return replace(graphs, pair=pair, node=node), encoded.record


def _encode_on_the_fly(encoding: Encoding, graphs: GraphDataset) -> tuple[GraphDataset, dict[str, Any]]:
    """Return a split whose batches compute the encoding, and the record of a sample, which is computed here.

    So what a graph of the split would raise is often raised now, and kernels are compiled here, not in every process.
    """
    encoder, numbers = OnTheFly(encoding, _where(graphs)), encoding.sample(_arrays(graphs))
    sample = select(_arrays(graphs), numbers)
    encoded = encoder.encode(sample, numbers)
    check_arrays(encoding, encoded, sample, graphs.split)
    record = encoded.record | {"sampled_graphs": len(numbers), "num_graphs": len(graphs)}
    return replace(graphs, encoders={**graphs.encoders, encoding.name: encoder}), record


def _where(graphs: GraphDataset) -> str:
    return f"{graphs.name}, {graphs.split} split"


def _stores(splits: dict[str, GraphDataset], encodings: list[Encoding], store: StoreOptions) -> Iterator[CountStore]:
    check_encodable(splits, encodings)
    for encoding in encodings:
        for graphs in splits.values():
            kept = encoding.store_of(_arrays(graphs), name=_name(graphs), root=store.dir)
            if kept is not None:
                yield kept


def _arrays(graphs: GraphDataset) -> GraphArrays:
    return GraphArrays(*(t.numpy() for t in (graphs.node_ptr, graphs.edge_ptr, graphs.edge_index_2E)))


def _name(graphs: GraphDataset) -> str:
    return f"{graphs.name}-{graphs.split}"


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Put `what` before the message of a DataError, which says no more than the number of the graph."""
    try:
        yield
    except DataError as err:
        raise DataError(f"{what}, {err}") from err


def _progress_bar(name: str, num_graphs: int) -> tqdm:
    return tqdm(total=num_graphs, desc=name, unit="graph", disable=not sys.stderr.isatty())


def _free_bytes(folder: Path) -> int:
    """Free space where `folder` is or will be."""
    folder = folder.absolute()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.is_dir())).free
