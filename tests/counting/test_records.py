"""What counting returns says what it is in one line."""

import numpy as np
import pytest
from small_graphs import random_graphs

from graphgps_spse.counting import count_simple_paths, count_simple_paths_many
from graphgps_spse.counting.records import STATUSES, Status

RING = [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]


def test_an_exact_result():
    paths = count_simple_paths(RING, 6, 3)
    assert repr(paths) == "PathCounts(6 nodes, lengths 1 to 3, all exact, largest count 2, method auto)"
    assert str(paths) == repr(paths)


def test_a_result_that_was_given_up():
    complete = np.stack(np.triu_indices(24, 1))
    cut = count_simple_paths(complete, 24, 4, method="exact", max_work=1)
    assert repr(cut) == (
        "PathCounts(24 nodes, lengths 1 to 4, exact up to 1, then not counted, largest count 1, method exact)"
    )


@pytest.mark.parametrize(
    ("method", "words"), [("sampled", "exact up to 3, then estimated"), ("dag", "exact up to 1, then lower bound")]
)
def test_estimates_and_bounds(method, words):
    complete = np.stack(np.triu_indices(12, 1))
    assert words in repr(count_simple_paths(complete, 12, 6, method=method))


def test_a_large_result_is_short():
    complete = np.stack(np.triu_indices(300, 1))
    shown = repr(count_simple_paths(complete, 300, 30, budget=1_000_000))
    assert shown.startswith("PathCounts(300 nodes, lengths 1 to 30, exact up to ") and len(shown) < 160


def test_many_graphs():
    many = count_simple_paths_many(random_graphs(20), 4)
    assert repr(many).startswith(f"FlatPathCounts(20 graphs, {len(many.counts)} pairs, lengths 1 to 4, all exact")


def test_no_nodes():
    assert repr(count_simple_paths([[], []], 0, 2)) == (
        "PathCounts(0 nodes, lengths 1 to 2, all exact, largest count 0, method auto)"
    )


def test_codes_are_places_in_the_list_of_statuses():
    assert tuple(Status) == STATUSES and [status.code for status in Status] == [0, 1, 2, 3]
