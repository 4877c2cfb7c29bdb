import numpy as np
import pytest

from graphgps_spse.ops import chunks
from graphgps_spse.ops.chunks import FEWEST_SHARES, MOST_SHARES, Shares, add_late_keys, shares_of
from graphgps_spse.ops.pair_layout import PairLayout

SIZES = (1, 2, 3, 5, 9, 4, 4)


@pytest.mark.parametrize("max_rows", [1, 2, 7, 20, 60, 151, 152, 1000])
def test_chunks_cover_every_query_once_and_are_bounded(max_rows):
    layout = PairLayout(SIZES)
    shares = Shares(layout, max_rows)
    ends = np.append(layout.query_rows.first_row, layout.num_pairs)
    first, last, start, stop = shares.chunks_C4.T
    assert first[0] == 0 and last[-1] == layout.num_nodes and (first[1:] == last[:-1]).all() and (first < last).all()
    assert (start == ends[first]).all() and (stop == ends[last]).all()
    assert shares.max_rows == (stop - start).max() <= (max_rows if max(SIZES) <= max_rows else 2 * max(SIZES))


@pytest.mark.parametrize("seed", range(5))
def test_no_chunk_is_longer_than_asked_where_the_longest_query_fits(seed):
    """Also if the longest query has more than half of the rows."""
    sizes = np.random.default_rng(seed).integers(50, 123, 40).tolist()
    shares = Shares(PairLayout(tuple(sizes)), 122)
    first, last, start, stop = shares.chunks_C4.T
    assert (stop - start).max() <= 122 and len(shares.shares) == MOST_SHARES
    assert first[0] == 0 and last[-1] == sum(sizes) and (first[1:] == last[:-1]).all()
    rows = [stop[share.last - 1] - start[share.first] for share in shares.shares]
    assert max(rows) < 1.3 * np.mean(rows)


@pytest.mark.parametrize("max_rows", [1, 2, 7, 20, 60, 151, 152, 1000])
def test_shares_cover_every_chunk_once(max_rows):
    layout = PairLayout(SIZES)
    shares = Shares(layout, max_rows)
    assert [share.number for share in shares.shares] == list(range(len(shares.shares)))
    assert [share.first for share in shares.shares] == [0, *(share.last for share in shares.shares[:-1])]
    assert shares.shares[-1].last == len(shares.chunks_C4)
    assert len(shares.shares) <= MOST_SHARES and (layout.num_pairs > max_rows or len(shares.shares) == 1)


def test_shares_have_about_equal_numbers_of_pairs():
    layout = PairLayout((20,) * 40)
    shares = Shares(layout, 2048)
    assert len(shares.shares) == FEWEST_SHARES
    _, _, start, stop = shares.chunks_C4.T
    counts = [stop[share.last - 1] - start[share.first] for share in shares.shares]
    assert max(counts) - min(counts) <= 2 * 20
    assert shares_of(layout, 2048) is shares_of(layout, 2048)


def test_gradients_of_keys_of_an_earlier_graph_are_added_to_its_nodes():
    layout = PairLayout((2, 6))
    shares = Shares(layout, 6)
    assert shares.late_S2[0].tolist() == [0, 0] and (shares.late_S2[2:] == [2, 6]).all() and shares.most_late == 6
    late = np.ones((len(shares.shares), 6, 3))
    grad_k, grad_v = np.zeros((2, 8, 3))
    add_late_keys(shares.late_S2, late, 2 * late, grad_k, grad_v)
    number = (shares.late_S2[:, 1] > 0).sum()
    assert number > 1 and (grad_k[:2] == 0).all() and (grad_k[2:] == number).all() and (grad_v[2:] == 2 * number).all()


def test_scratch_buffers_are_kept_for_the_next_walk_with_the_same_key():
    shares, used = Shares(PairLayout((4, 4)), 8), []
    for key in (("a",), ("a",), ("b",)):
        shares.walk(lambda share, buffers: used.append(buffers), lambda: object(), key)
    assert len(set(used)) == 2 and len(used) == 3 * len(shares.shares)


@pytest.mark.parametrize(
    ("largest", "rows"), [(0, 500), (1_000_000, 122), (4_100_000, 500), (1_000_000 // 12, 10), (73_700, 500)]
)
def test_chunks_are_as_long_as_small_products_allow(monkeypatch, largest, rows):
    """The longest query has 9 pairs, and a row takes 8,192 multiplications."""
    monkeypatch.setattr(chunks, "largest_small_product", lambda: largest)
    assert chunks.rows_of_chunks(PairLayout(SIZES), 8192, 500) == rows
