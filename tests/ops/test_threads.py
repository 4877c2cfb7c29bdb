"""Items are visited by several threads, what must be in order is in order, and errors end the walk."""

import threading
import time

import pytest
import torch

from graphgps_spse.ops.threads import threads_restored, use_threads, walk

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def restored():
    with threads_restored():
        yield


@pytest.mark.parametrize("num_threads", [1, 2, 4, 7])
def test_every_item_is_visited_once_and_what_is_in_order_keeps_their_order(num_threads):
    use_threads(num_threads, CPU, walks=True)
    visited, in_order, busy = [], [], threading.Lock()

    def start():
        def visit(number, item):
            assert not torch.is_grad_enabled() and torch.get_num_threads() == 1
            time.sleep(0.001 * (number % 3))  # so that later items are ready first
            visited.append(item)

            def add():
                assert busy.acquire(blocking=False)
                in_order.append(number)
                busy.release()

            return add if number % 4 else None

        return visit

    walk("abcdefghijk", start)
    assert sorted(visited) == list("abcdefghijk")
    assert in_order == [number for number in range(11) if number % 4]


def test_items_are_visited_at_the_same_time():
    use_threads(2, CPU, walks=True)
    meeting = threading.Barrier(2, timeout=30)

    def visit(number, item):
        meeting.wait()  # one thread alone would wait in vain

    walk([0, 1], lambda: visit)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("in_order", [False, True])
def test_an_error_of_any_visit_ends_the_walk(num_threads, in_order):
    use_threads(num_threads, CPU, walks=True)
    visited = []

    def fail():
        raise MemoryError("no more")

    def visit(number, item):
        visited.append(number)
        if number == 2 and not in_order:
            fail()
        return fail if number == 2 else lambda: None

    with pytest.raises(MemoryError, match="no more"):
        walk(range(1000), lambda: visit)
    assert len(visited) < 1000
    walk(range(3), lambda: lambda number, item: None)  # the threads work on


def test_without_items_nothing_is_visited():
    use_threads(2, CPU, walks=True)
    walk([], lambda: lambda number, item: pytest.fail("there is no item"))


@pytest.mark.parametrize(("device", "walks"), [("cuda", True), ("cpu", False)])
def test_threads_of_another_device_and_of_models_without_chunks_are_those_of_pytorch(device, walks):
    use_threads(3, torch.device(device), walks=walks)
    assert torch.get_num_threads() == 3
    owner = threading.get_ident()
    walk(range(20), lambda: lambda number, item: None if threading.get_ident() == owner else pytest.fail("a thread"))


def test_the_former_numbers_of_threads_are_restored():
    before = torch.get_num_threads()
    with threads_restored():
        use_threads(before + 2, CPU, walks=False)
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
