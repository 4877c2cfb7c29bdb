import numpy as np
import pytest
import torch

from graphgps_spse.ops.chunks import cut_into_chunks
from graphgps_spse.ops.pair_layout import PairLayout

SIZES = (1, 2, 3)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 5, 9, 14, 100])
def test_chunks_cover_every_query_once_within_windows_of_one_length(max_rows):
    layout = PairLayout(SIZES)
    windows = cut_into_chunks(layout, max_rows)
    ends = np.append(layout.query_rows.first_row, layout.num_pairs)
    assert [c.first for c in windows] == [0, *(c.last for c in windows[:-1])] and windows[-1].last == 6
    for chunk in windows:
        assert (chunk.start, chunk.stop) == (ends[chunk.first], ends[chunk.last])
        assert 0 <= chunk.window <= chunk.start
        assert chunk.stop <= chunk.window + chunk.rows <= layout.num_pairs
        assert chunk.rows == max(3, min(max_rows, 14))
        assert chunk.stop - chunk.start <= chunk.rows


def test_clear_rest_leaves_only_the_chunks_own_rows():
    layout = PairLayout(SIZES)
    last = cut_into_chunks(layout, 8)[-1]
    assert (last.start, last.stop, last.window) == (8, 14, 6)
    x_RD = torch.ones(8, 1)
    last.clear_rest(x_RD)
    assert x_RD[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
