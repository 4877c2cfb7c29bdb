"""Pairs read from the store: the values of the computation in memory, in any process."""

import pickle
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from encoding_graphs import flat
from store_graphs import graphs, small_shards

from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.encodings import request as request_module
from graphgps_spse.encodings.spse import SPSE
from graphgps_spse.encodings.store import StoreOptions


@pytest.fixture(autouse=True)
def _several_shards(monkeypatch):
    small_shards(monkeypatch)


def provide(encoding, split, root, mode="always", **options):
    asked = {"name": "Random-train", "store": StoreOptions(mode, root, **options)}
    return encoding.provide(split, place=encoding.place(split, **asked), **asked)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.2, "beta": -0.2, "n": 3},
        {"alpha": 1.0, "n": 0, "node_pe": "none"},
        {"num_channels": 9, "beta": 0.3, "node_pe": "spse_diag"},
        {"num_channels": 3, "node_pe": "cycles"},
        {"directed": True, "node_pe": "cycles", "n": 2},
    ],
)
def test_equal_to_the_computation_in_memory(tmp_path, options):
    """Counts below 65,536 are kept as they are, so every bit is equal."""
    encoding, split = SPSE(max_length=5, **options), graphs()
    memory, stored = encoding.compute(split), provide(encoding, split, tmp_path)
    assert stored.pair.shape == memory.pair.shape and stored.pair.dtype == memory.pair.dtype
    np.testing.assert_array_equal(stored.pair.rows_of(range(61)).numpy(), memory.pair)
    if memory.node is None:
        assert stored.node is None
    else:
        np.testing.assert_array_equal(stored.node, memory.node)
    folder = stored.record.pop("stored")
    assert folder["max_error_of_ln"] == 0 and folder["folder"].startswith("Random-train-auto-")
    assert stored.record == memory.record


def huge_counter(graphs, first, last, max_length, options, limit, spread, counts):
    """Symmetric counts of 1 to e^50 on the edges, to see what becomes of those that do not fit 16 bits."""
    rng, pair = np.random.default_rng(first), 0
    for n in np.diff(graphs.node_ptr[first : last + 1]):
        block = np.triu(np.exp(rng.uniform(0, 50, (max_length, n, n))), 1)
        counts[pair : pair + n * n] = (block + block.transpose(0, 2, 1)).reshape(max_length, -1).T
        pair += n * n
    return ChunkCounts(counts, None, np.zeros((last - first, max_length), np.int8), 1)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_large_counts_are_within_the_bound(tmp_path, monkeypatch, n):
    monkeypatch.setitem(request_module.map_path_counts.__globals__["COUNTERS"], "auto", huge_counter)
    split = flat(*[([(i, (i + 1) % 12) for i in range(12)], 12)])
    encoding = SPSE(max_length=4, alpha=0.5, n=n, node_pe="cycles")
    memory, stored = encoding.compute(split), provide(encoding, split, tmp_path)
    bound = stored.record["stored"]["max_error_of_ln"]
    assert 1e-4 < bound < 50 / 131_068
    error = np.abs(stored.pair.rows_of([0]).numpy() - memory.pair)
    assert 0 < error.max() <= 0.5 * bound + 2e-6
    assert np.abs(stored.node - memory.node).max() <= 0.5 * bound + 2e-6


def test_other_alpha_beta_and_n_need_no_counting(tmp_path, monkeypatch):
    split = graphs()
    provide(SPSE(max_length=5), split, tmp_path)
    monkeypatch.setattr(request_module, "map_path_counts", None)
    other = provide(SPSE(max_length=5, alpha=0.2, beta=-0.2, n=3), split, tmp_path).pair.rows_of([7, 60, 3])
    monkeypatch.undo()
    expected = SPSE(max_length=5, alpha=0.2, beta=-0.2, n=3).compute(split).pair
    ptr = np.concatenate([[0], np.cumsum(np.diff(split.node_ptr) ** 2)])
    rows = [expected[ptr[g] : ptr[g + 1]] for g in (7, 60, 3)]
    np.testing.assert_array_equal(other.numpy(), np.concatenate(rows))


def test_when_the_store_is_used(tmp_path, monkeypatch):
    split, encoding = graphs(), SPSE(max_length=5)
    assert isinstance(provide(encoding, split, tmp_path, "auto").pair, np.ndarray), "too cheap to keep"
    assert isinstance(provide(encoding, split, tmp_path, "never").pair, np.ndarray)
    assert not list(tmp_path.iterdir())
    small = provide(encoding, split, tmp_path / "size", "auto", min_gib=0.0)
    assert not isinstance(small.pair, np.ndarray)
    slow = provide(encoding, split, tmp_path / "time", "auto", min_seconds=0.0)
    assert not isinstance(slow.pair, np.ndarray)
    there = provide(encoding, split, tmp_path / "time", "auto")
    assert not isinstance(there.pair, np.ndarray), "what is there is used"
    assert isinstance(provide(encoding, split, tmp_path / "time", "never").pair, np.ndarray)


def test_identity_alone_needs_no_store(tmp_path):
    assert isinstance(provide(SPSE(max_length=3, num_channels=1), graphs(), tmp_path).pair, np.ndarray)
    assert not list(tmp_path.iterdir())


def test_pickled_by_path(tmp_path):
    pairs = provide(SPSE(max_length=5), graphs(600), tmp_path).pair
    expected = pairs.rows_of([5, 599])
    packed = pickle.dumps(pairs)
    assert len(packed) < 8000
    assert torch.equal(pickle.loads(packed).rows_of([5, 599]), expected)


def test_read_in_a_forked_process(tmp_path):
    pairs = provide(SPSE(max_length=5), graphs(), tmp_path).pair
    expected, (ours, theirs) = pairs.rows_of([5, 60]).numpy(), get_context("fork").Pipe(False)
    child = get_context("fork").Process(target=lambda: theirs.send(pairs.rows_of([5, 60]).numpy()), daemon=True)
    child.start()
    assert ours.poll(60), "the child does not answer"
    np.testing.assert_array_equal(ours.recv(), expected)
    child.join(60)
    assert child.exitcode == 0
