import pytest
import torch
from tiny_run import split

from graphgps_spse.errors import DataError, DivergedError
from graphgps_spse.training.metrics import Errors
from graphgps_spse.training.running import FiniteGuard, Running

CPU = torch.device("cpu")


def test_loss_is_the_mean_over_graphs():
    graphs = split("train", 10)
    running = Running(Errors(CPU), CPU)
    for loss, indices in ((1.0, range(8)), (6.0, range(8, 10))):
        batch = graphs.batch(indices)
        running.update(torch.tensor(loss), batch.y + 0.5, batch.y, batch.num_graphs)
    values = running.compute("train")
    assert values["loss"] == 2.0 and values["mae"] == pytest.approx(0.5, rel=1e-6)
    assert values["time_iter"] * 2 == values["time_epoch"]
    assert values["graphs_per_second"] * values["time_epoch"] == pytest.approx(10)


def test_state_counts_on():
    batch = split("train", 4).batch(range(4))
    first = Running(Errors(CPU), CPU)
    first.update(torch.tensor(0.1), batch.y + 1, batch.y, batch.num_graphs)
    state = first.state()
    second = Running(Errors(CPU), CPU)
    second.load(state)
    for running in (first, second):
        running.update(torch.tensor(0.3), batch.y + 2, batch.y, batch.num_graphs)
    assert second.seconds > state["seconds"] > 0
    assert (second.num_graphs, second.num_batches) == (8, 2)
    ours, theirs = second.compute("train"), first.compute("train")
    assert (ours["loss"], ours["mae"]) == (theirs["loss"], theirs["mae"]) and ours["loss"] == pytest.approx(0.2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_the_guard_names_the_first_bad_batch(bad):
    guard = FiniteGuard()
    guard.watch("loss", 3, torch.tensor(1.0), torch.tensor([1, 2]))
    guard.check("train, epoch 7")
    guard.watch("loss", 4, torch.tensor(bad), torch.tensor([30, 40]))
    guard.watch("gradient norm", 5, torch.tensor(bad), torch.tensor([50, 60]))
    with pytest.raises(DivergedError, match=r"train, epoch 7, step 4: the loss is .*(nan|inf).*\[30, 40\]"):
        guard.check("train, epoch 7")


def test_the_guard_forgets_what_was_checked():
    guard = FiniteGuard()
    guard.check("nothing yet")
    guard.watch("loss", 0, torch.tensor(1.0), torch.tensor([0]))
    guard.check("train")
    assert not guard._values and not guard._places


def test_a_split_without_metrics_is_named():
    running = Running(Errors(CPU, may_miss_targets=True), CPU)
    running.update(torch.tensor(0.0), torch.zeros(2, 1), torch.full((2, 1), torch.nan), 2)
    with pytest.raises(DataError, match="test split: none of its targets is known"):
        running.compute("test")
