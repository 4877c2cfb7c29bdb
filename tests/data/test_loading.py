"""Loaders: the order is a function of seed and epoch, whatever the workers and wherever they start."""

import torch
from test_base import make_dataset

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.loading import GraphLoader


def many_graphs(num_graphs: int = 23) -> GraphDataset:
    one = torch.arange(num_graphs + 1)
    return make_dataset(
        x_NF=one[:-1].reshape(-1, 1), edge_index_2E=torch.zeros(2, 0, dtype=torch.int64), edge_attr_EF=None,
        y=one[:-1].reshape(-1, 1).float(), node_ptr=one, edge_ptr=torch.zeros_like(one),
    )  # fmt: skip


def epoch(loader: GraphLoader, number: int, start: int = 0) -> list[list[int]]:
    return [batch.index_B.tolist() for batch in loader.epoch(number, start)]


def make_loader(**changes) -> GraphLoader:
    return GraphLoader(many_graphs(), **{"batch_size": 4, "seed": 7, "shuffle": True, **changes})


def test_every_graph_once_an_epoch_in_a_new_order():
    loader = make_loader()
    first, second = epoch(loader, 0), epoch(loader, 1)
    assert len(first) == len(loader) == 6 and [len(b) for b in first] == [4, 4, 4, 4, 4, 3]
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(23))
    assert first != second and epoch(loader, 0) == first
    assert epoch(make_loader(seed=8), 0) != first
    assert epoch(make_loader(shuffle=False), 3) == [list(range(i, min(i + 4, 23))) for i in range(0, 23, 4)]


def test_resumes_at_any_batch_with_any_number_of_workers():
    whole = epoch(make_loader(), 2)
    assert epoch(make_loader(), 2, start=4) == whole[4:]
    assert epoch(make_loader(), 2, start=6) == []
    workers = make_loader(num_workers=2)
    assert epoch(workers, 2) == whole
    assert epoch(workers, 2, start=3) == whole[3:]  # the same worker processes, told anew where to start


def test_global_generator_is_left_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    epoch(make_loader(), 0)
    assert torch.equal(torch.rand(1), expected)
