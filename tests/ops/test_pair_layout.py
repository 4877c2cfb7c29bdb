import pytest
import torch

from graphgps_spse.ops.pair_layout import PairLayout

SIZES = (1, 2, 3)
# rows: graph 0: (0,0); graph 1: (1,1) (1,2) (2,1) (2,2); graph 2: (3,3) (3,4) ... (5,5)
PAIRS = [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2)] + [(i, j) for i in (3, 4, 5) for j in (3, 4, 5)]


def test_arrays_by_hand():
    layout = PairLayout(SIZES)
    assert (layout.num_graphs, layout.num_nodes, layout.num_pairs) == (3, 6, 14)
    assert layout.query_rows.first_key.tolist() == [0, 1, 1, 3, 3, 3]
    assert layout.query_rows.num_keys.tolist() == [1, 2, 2, 3, 3, 3]
    assert layout.query_rows.first_row.tolist() == [0, 1, 3, 5, 8, 11]


def test_tiles_of_keys_by_hand():
    """Tiles of two keys: parts of query 3 are rows 3 and 4, one for keys 3 and 4 and one for key 5."""
    layout = PairLayout(SIZES)
    tiles = layout.key_tiles(2)
    assert tiles.tiles_T6.tolist() == [[0, 1, 0, 0, 0, 1], [1, 2, 1, 0, 1, 1], [3, 3, 5, 0, 3, 2], [3, 3, 5, 2, 4, 2]]
    assert tiles.parts_N.tolist() == [1, 1, 1, 2, 2, 2] and tiles.num_parts == 9
    assert layout.query_rows_3N.tolist() == [[0, 1, 1, 3, 3, 3], [1, 2, 2, 3, 3, 3], [0, 1, 3, 5, 8, 11]]
    assert layout.key_tiles(2) is tiles and PairLayout(()).key_tiles(2).tiles_T6.shape == (0, 6)


def test_an_edge_has_the_row_of_the_pair_that_it_leads_along():
    edges = [(2, 1), (1, 2), (5, 3), (3, 3)]
    layout, edge_index_2E = PairLayout(SIZES), torch.tensor(edges).t()
    assert [PAIRS[row] for row in layout.edge_rows(edge_index_2E)] == edges
    assert [PAIRS[row] for row in layout.reverse_edge_rows(edge_index_2E)] == [(v, u) for u, v in edges]


def test_nodes_at_pairs_and_sums_by_hand():
    layout = PairLayout(SIZES)
    x_ND = torch.arange(6.0).reshape(6, 1)
    assert layout.at_queries(x_ND)[:, 0].tolist() == [i for i, _ in PAIRS]
    assert layout.at_keys(x_ND)[:, 0].tolist() == [j for _, j in PAIRS]
    assert layout.sum_nodes(x_ND)[:, 0].tolist() == [0, 3, 12]
    assert layout.mean_nodes(x_ND)[:, 0].tolist() == [0, 1.5, 4]
    assert layout.sum_keys(layout.at_keys(x_ND))[:, 0].tolist() == [0, 3, 3, 12, 12, 12]
    assert layout.max_keys(layout.at_keys(x_ND))[:, 0].tolist() == [0, 2, 2, 5, 5, 5]


@pytest.mark.parametrize("name", ["at_queries", "at_keys", "sum_nodes"])
def test_gradients_on_nodes(name):
    layout = PairLayout(SIZES)
    x_ND = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(layout, name), [x_ND])


def test_gradients_of_sums_over_keys():
    x_PD = torch.randn(14, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PairLayout(SIZES).sum_keys, [x_PD])


def test_half_precision_is_summed_in_float32():
    x_PD = torch.full((14, 1), 1.0, dtype=torch.bfloat16)
    x_PD[0] = 257.0  # not a bfloat16, rounds to 256
    total = PairLayout(SIZES).sum_keys(x_PD)
    assert total.dtype == torch.float32
    assert total[:, 0].tolist() == [256, 2, 2, 3, 3, 3]


def test_rows_become_the_edges_whose_rows_they_are_and_the_diagonal_is_where_it_should_be():
    layout = PairLayout(SIZES)
    edge_index_2E = layout.edges_of(torch.arange(14))
    assert list(zip(*edge_index_2E.tolist())) == PAIRS
    assert layout.edge_rows(edge_index_2E).tolist() == list(range(14))
    assert [PAIRS[row] for row in layout.diagonal_rows] == [(i, i) for i in range(6)]
