import pytest
import torch

from graphgps_spse.errors import ConfigError, DivergedError
from graphgps_spse.training.guards import FiniteGuard, check_shares


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


def test_every_process_needs_a_graph_of_each_batch():
    check_shares(10, 4, 2)
    with pytest.raises(ConfigError, match="batch_size: 4 leaves 2 of 10 graphs to the last batch.* too few for 3"):
        check_shares(10, 4, 3)
