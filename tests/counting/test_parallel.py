"""Chunks of graphs, and what stops the threads that count them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from graphgps_spse.counting.parallel import chunk_bounds, for_each_chunk


def test_chunks_cover_all_graphs():
    pair_ptr = np.array([0, 4, 4, 400, 404, 408, 412])
    assert chunk_bounds(pair_ptr, 8) == [(0, 2), (2, 3), (3, 5), (5, 6)]


def test_a_signal_while_work_is_handed_out_stops_it(monkeypatch):
    """The stop must reach a chunk that already runs when the signal comes between two submits."""
    stopped, submit = Event(), ThreadPoolExecutor.submit

    def submit_then_interrupt(pool, process, *bounds):
        submit(pool, process, *bounds)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        for_each_chunk(lambda *_: stopped.wait(60), [(0, 1), (1, 2)], stop=stopped.set)
    assert stopped.is_set()
