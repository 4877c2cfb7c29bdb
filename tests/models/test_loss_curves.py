"""The first steps of training are those stored by remake_loss_curves.py."""

import json

import pytest
from remake_loss_curves import MODELS, NUM_STEPS, STORED, loss_curve


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_stored(name):
    """To 1e-9 of each: sums in another order, as other CPUs and libraries take them, moved none by more than 1e-11."""
    stored = json.loads(STORED.read_text())[name]
    assert len(stored) == NUM_STEPS and min(stored) > 0 and stored[0] != stored[4]
    assert loss_curve(name) == pytest.approx(stored, rel=1e-9)


@pytest.mark.parametrize("name", ["CSA-RWSE", "GPS-RWSE", "GRIT-RWSE"])
def test_the_reference_has_the_same_losses(name):
    """It sums in another order, so this also says how far rounding can move a loss."""
    assert loss_curve(name, kernels="plain") == pytest.approx(json.loads(STORED.read_text())[name], rel=1e-10)


def test_every_model_is_stored():
    assert set(json.loads(STORED.read_text())) == set(MODELS)
