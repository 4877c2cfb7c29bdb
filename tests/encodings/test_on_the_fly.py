"""Encodings computed as batches are built: the bits of the arrays in memory, in any process, and errors that arrive."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from encoding_graphs import both_ways, flat, random_graphs

from graphgps_spse.counting import COUNTERS
from graphgps_spse.counting.records import ChunkCounts
from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.loading import GraphLoader
from graphgps_spse.encode import encode
from graphgps_spse.encodings import compile_kernels
from graphgps_spse.encodings.base import GraphArrays
from graphgps_spse.encodings.lappe import LapPE
from graphgps_spse.encodings.on_the_fly import OnTheFly, select
from graphgps_spse.encodings.rings import Rings
from graphgps_spse.encodings.rrwp import RRWP
from graphgps_spse.encodings.rwse import RWSE
from graphgps_spse.encodings.spd import SPD
from graphgps_spse.encodings.spse import SPSE
from graphgps_spse.encodings.store import StoreOptions
from graphgps_spse.errors import DataError

DENSE = ([(i, j) for i in range(10) for j in range(i)], 10)


def ring(n=40):
    return both_ways([(i, (i + 1) % n) for i in range(n)]), n


SMALL_AND_DENSE = [*(ring(n) for n in (9, 3, 8, 4)), DENSE, ring(5)]
ENCODINGS = [
    RRWP(num_channels=5),
    RWSE(times=range(1, 4), pairs=True),
    RWSE(times=[2, 5]),
    SPSE(max_length=4),
    SPSE(max_length=4, node_pe="cycles", num_channels=3, alpha=0.2, beta=-0.2, n=2),
    SPSE(max_length=6, method="sampled", budget=1000, node_pe="none"),
    SPSE(max_length=4, method="dag", R=0.5),
    SPD(max_length=3),
    Rings(max_length=5),
    LapPE(max_freqs=3),
]


def dataset(*graphs, narrow=False) -> GraphDataset:
    arrays = flat(*(graphs or (*random_graphs(30, 3), DENSE)))
    node_ptr, edge_ptr, edges = (torch.from_numpy(array) for array in arrays)
    num_graphs = len(node_ptr) - 1
    return GraphDataset(
        name="Random", split="train", x_NF=torch.zeros(int(node_ptr[-1]), 1), y=torch.zeros(num_graphs, 1),
        edge_index_2E=edges.to(torch.int16).T.contiguous().T if narrow else edges, edge_attr_EF=None,
        node_ptr=node_ptr, edge_ptr=edge_ptr,
    )  # fmt: skip


def batches(graphs, num_workers=0):
    loader = GraphLoader(graphs, batch_size=7, seed=0, shuffle=True, num_workers=num_workers)
    return list(loader.epoch(0))


def both(encodings, tmp_path, **changes):
    splits, store = {"train": dataset(**changes)}, StoreOptions(mode="never", dir=tmp_path)
    memory, _ = encode(splits, encodings, 2, store)
    fly, records = encode(splits, encodings, 2, replace(store, on_the_fly=True))
    return memory["train"], fly["train"], records


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: f"{e.name}-{e.dim_pair}-{e.dim_node}")
@pytest.mark.parametrize("narrow", [False, True], ids=["int64", "int16"])
def test_bits_are_those_of_the_arrays_in_memory(encoding, narrow, tmp_path):
    memory, fly, records = both([encoding], tmp_path, narrow=narrow)
    assert not fly.pair and not fly.node and list(fly.encoders) == [encoding.name]
    for expected, found in zip(batches(memory), batches(fly), strict=True):
        assert torch.equal(expected.index_B, found.index_B)
        for theirs, ours in ((expected.pair, found.pair), (expected.node, found.node)):
            assert theirs.keys() == ours.keys()
            for name in theirs:
                assert theirs[name].dtype == ours[name].dtype == torch.float32
                assert torch.equal(theirs[name].view(torch.int32), ours[name].view(torch.int32))  # LapPE holds NaN
    assert records[encoding.name]["train"]["place"] == "on the fly" and not list(tmp_path.iterdir())


def test_several_encodings_in_worker_processes(tmp_path):
    memory, fly, _ = both([ENCODINGS[0], ENCODINGS[4], ENCODINGS[7]], tmp_path)
    for expected, found in zip(batches(memory), batches(fly, num_workers=2), strict=True):
        assert list(found.pair) == ["RRWP", "SPSE", "SPD"] and list(found.node) == ["RRWP", "SPSE"]
        for name in found.pair:
            assert torch.equal(expected.pair[name], found.pair[name])
        for name in found.node:
            assert torch.equal(expected.node[name], found.node[name])


def test_one_computation_gives_pairs_and_nodes(monkeypatch, tmp_path):
    _, fly, _ = both([RRWP(num_channels=3)], tmp_path)
    calls = []

    def compute(self, graphs, **options):
        calls.append(options)
        return original(self, graphs, **options)

    original = RRWP.compute
    monkeypatch.setattr(RRWP, "compute", compute)
    fly.batch([3, 1])
    assert calls == [{"num_threads": 1}]


def refuse_dense(graphs, first, last, max_length, options, limit, spread, counts):
    """A counter that gives no count of 3 edges or more for graphs of 10 nodes."""
    status = np.zeros((last - first, max_length), np.int8)
    status[np.diff(graphs.node_ptr[first : last + 1]) == 10, 2:] = 3
    return ChunkCounts(counts, None, status, 1)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_error_names_the_graph_of_the_split(monkeypatch, num_workers):
    """Whether it is raised in this process or in a worker, the user gets the message alone."""
    monkeypatch.setitem(COUNTERS, "exact", refuse_dense)
    encoder = OnTheFly(SPSE(max_length=4, method="exact", max_work=5), "Random, train split")
    graphs = replace(dataset(*SMALL_AND_DENSE), encoders={"SPSE": encoder})
    with pytest.raises(DataError) as error:
        batches(graphs, num_workers)
    assert str(error.value) == (
        "Random, train split, graph 4: counting its paths of 3 edges takes more than max_work, 5 units of about a "
        "nanosecond. method: auto estimates such lengths; a larger max_work counts them"
    )


def test_the_sample_raises_before_training(monkeypatch, tmp_path):
    monkeypatch.setitem(COUNTERS, "exact", refuse_dense)
    splits, store = {"train": dataset(*SMALL_AND_DENSE)}, StoreOptions(dir=tmp_path, on_the_fly=True)
    with pytest.raises(DataError, match="^Random, train split, graph 4: counting its paths of 3 edges"):
        encode(splits, [SPSE(max_length=4, method="exact")], 1, store)


def test_record_says_what_it_rests_on(tmp_path):
    """The status of a sample, named as one: nothing is known of the other graphs until they are read."""
    many = dataset(*random_graphs(200, 9))
    store = StoreOptions(dir=tmp_path, on_the_fly=True)
    _, records = encode({"train": many}, [SPSE(max_length=6, method="sampled", budget=1000)], 1, store)
    record = records["SPSE"]["train"]
    assert (record["sampled_graphs"], record["num_graphs"]) == (64, 200)
    assert record["method"] == "sampled" and record["status"] == ["exact"] * 3 + ["estimated"] * 3


def dense(n=24):
    return [(i, j) for i in range(n) for j in range(n) if i != j], n


def place(encoding, graphs, tmp_path, **options):
    arrays = flat(*graphs)
    return encoding.place(arrays, name="Random-train", store=StoreOptions(dir=tmp_path, **options)).where


def test_large_arrays_are_computed_on_the_fly(tmp_path):
    for encoding in (RRWP(num_channels=5), RWSE(times=[1, 2], pairs=True), SPD(max_length=2)):
        assert place(encoding, [ring()], tmp_path) == "memory"
        assert place(encoding, [ring()], tmp_path, min_gib=0.0) == "on the fly"
        assert place(encoding, [ring()], tmp_path, min_gib=0.0, mode="always") == "on the fly"
    assert RRWP(num_channels=4).gib(flat(ring(64))) == (64 * 64 + 64) * 4 * 4 / 2**30


def test_counts_that_are_cheap_are_computed_on_the_fly_and_others_are_kept(tmp_path):
    cheap, costly = [ring()] * 8, [dense()] * 4
    spse = SPSE(max_length=8)
    assert place(spse, cheap, tmp_path) == place(spse, costly, tmp_path) == "memory"
    assert place(spse, cheap, tmp_path, min_gib=0.0) == "on the fly"
    assert place(spse, costly, tmp_path, min_gib=0.0) == "store"
    assert place(spse, cheap, tmp_path, min_seconds=0.0) == "store"
    assert place(spse, costly, tmp_path, min_gib=0.0, mode="never") == "on the fly"
    assert place(spse, cheap, tmp_path, mode="always") == "store"
    slow = SPSE(max_length=8, method="exact")
    assert place(slow, [*cheap, dense(40)], tmp_path, min_gib=0.0) == "store", "one graph is too much for the sample"
    assert not list(tmp_path.iterdir())


def test_what_is_in_the_store_is_read_from_it(tmp_path):
    graphs, spse = [ring()] * 8, SPSE(max_length=8)
    store = spse.store_of(flat(*graphs), name="Random-train", root=tmp_path)
    store.ensure(range(len(store)))
    assert place(spse, graphs, tmp_path, min_gib=0.0) == "store"
    assert place(spse, [ring()] * 9, tmp_path, min_gib=0.0) == "on the fly"
    assert place(spse, [ring(39)] * 8, tmp_path, min_gib=0.0) == "on the fly"
    assert place(SPSE(max_length=7), graphs, tmp_path, min_gib=0.0) == "on the fly"
    assert place(SPSE(max_length=8, alpha=0.1), graphs, tmp_path, min_gib=0.0) == "store"


def test_select():
    graphs = flat(*random_graphs(6, 1))
    found = select(GraphArrays(graphs.node_ptr, graphs.edge_ptr, graphs.edge_index.astype(np.int16)), [4, 0])
    expected = flat(*[random_graphs(6, 1)[g] for g in (4, 0)])
    assert all(np.array_equal(*pair) for pair in zip(found, expected)) and found.edge_index.dtype == np.int64
    assert select(graphs, []).edge_index.shape == (2, 0)


def test_nothing_is_compiled_in_a_worker():
    """What a batch needs is compiled when encodings are set up: numba's kernels gain no new version in `batch`."""
    compile_kernels()
    from graphgps_spse.encodings import spse, walks

    kernels = [walks._walk_chunk, spse.write_scaled, spse._count_cycles]
    encoder = OnTheFly(SPSE(max_length=3, node_pe="cycles"), "Random, train split")
    before = [len(kernel.signatures) for kernel in kernels]
    replace(dataset(narrow=True), encoders={"SPSE": encoder, "RRWP": OnTheFly(RRWP(num_channels=3), "")}).batch([0, 30])
    assert [len(kernel.signatures) for kernel in kernels] == before
