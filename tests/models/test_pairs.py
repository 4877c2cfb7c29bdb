import numpy as np
import pytest
import torch

from graphgps_spse.models.pairs import PairLayout

SIZES = (1, 2, 3)
# rows: graph 0: (0,0); graph 1: (1,1) (1,2) (2,1) (2,2); graph 2: (3,3) (3,4) ... (5,5)
PAIRS = [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2)] + [(i, j) for i in (3, 4, 5) for j in (3, 4, 5)]


def test_arrays_by_hand():
    layout = PairLayout(SIZES)
    assert (layout.num_graphs, layout.num_nodes, layout.num_pairs) == (3, 6, 14)
    first_N, size_N, row_N = layout.arrays
    assert first_N.tolist() == [0, 1, 1, 3, 3, 3]
    assert size_N.tolist() == [1, 2, 2, 3, 3, 3]
    assert row_N.tolist() == [0, 1, 3, 5, 8, 11]


def test_edges_lie_at_receiver_and_sender():
    sender, receiver = torch.tensor([2, 1, 5, 3]), torch.tensor([1, 2, 3, 3])
    rows = PairLayout(SIZES).edge_rows(torch.stack([sender, receiver]))
    assert [PAIRS[row] for row in rows] == [(1, 2), (2, 1), (3, 5), (3, 3)]


def test_nodes_at_pairs_and_sums_by_hand():
    layout = PairLayout(SIZES)
    x_ND = torch.arange(6.0).reshape(6, 1)
    assert layout.at_receivers(x_ND)[:, 0].tolist() == [i for i, _ in PAIRS]
    assert layout.at_senders(x_ND)[:, 0].tolist() == [j for _, j in PAIRS]
    assert layout.sum_nodes(x_ND)[:, 0].tolist() == [0, 3, 12]
    assert layout.mean_nodes(x_ND)[:, 0].tolist() == [0, 1.5, 4]
    assert layout.sum_senders(layout.at_senders(x_ND))[:, 0].tolist() == [0, 3, 3, 12, 12, 12]
    assert layout.max_senders(layout.at_senders(x_ND))[:, 0].tolist() == [0, 2, 2, 5, 5, 5]


@pytest.mark.parametrize("name", ["at_receivers", "at_senders", "sum_nodes"])
def test_gradients_on_nodes(name):
    layout = PairLayout(SIZES)
    x_ND = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(layout, name), [x_ND])


def test_gradients_of_sums_over_senders():
    x_PD = torch.randn(14, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PairLayout(SIZES).sum_senders, [x_PD])


def test_half_precision_is_summed_in_float32():
    x_PD = torch.full((14, 1), 1.0, dtype=torch.bfloat16)
    x_PD[0] = 257.0  # not a bfloat16, rounds to 256
    total = PairLayout(SIZES).sum_senders(x_PD)
    assert total.dtype == torch.float32
    assert total[:, 0].tolist() == [256, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5, 9, 14, 100])
def test_chunks_cover_every_receiver_once_within_windows_of_one_length(max_rows):
    layout = PairLayout(SIZES)
    chunks = layout.chunks(max_rows)
    ends = np.append(layout.row_N, layout.num_pairs)
    assert [c.first for c in chunks] == [0, *(c.last for c in chunks[:-1])] and chunks[-1].last == 6
    for chunk in chunks:
        assert (chunk.start, chunk.stop) == (ends[chunk.first], ends[chunk.last])
        assert 0 <= chunk.window <= chunk.start
        assert chunk.stop <= chunk.window + chunk.rows <= layout.num_pairs
        assert chunk.rows == max(3, min(max_rows, 14))
        assert chunk.stop - chunk.start <= chunk.rows


def test_clear_rest_leaves_only_the_chunks_own_rows():
    layout = PairLayout(SIZES)
    last = layout.chunks(8)[-1]
    assert (last.start, last.stop, last.window) == (8, 14, 6)
    x_RD = torch.ones(8, 1)
    last.clear_rest(x_RD)
    assert x_RD[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 1, 1]


def test_nodes_of_rows_undo_edge_rows_and_the_diagonal_lies_where_it_should():
    layout = PairLayout(SIZES)
    receiver, sender = layout.nodes_of(torch.arange(14))
    assert list(zip(receiver.tolist(), sender.tolist())) == PAIRS
    assert [PAIRS[row] for row in layout.diagonal_rows] == [(i, i) for i in range(6)]
