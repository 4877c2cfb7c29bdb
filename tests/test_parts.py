"""Checking a configuration without running it, as sweeps do."""

from pathlib import Path

import pytest

from graphgps_spse.config import load_config
from graphgps_spse.errors import ConfigError
from graphgps_spse.parts import check_config
from graphgps_spse.sweeps.sweep import read_sweep

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@pytest.mark.parametrize("name", ["quickstart", "synthetic-small"])
def test_runs_of_shipped_sweeps_pass_the_check(name):
    """Their overrides set num_threads, which a run reads although no part is built from it."""
    runs = {run.name: run for run in read_sweep(CONFIGS / "sweeps" / f"{name}.yaml")}
    for run in runs.values():
        check_config(run.cfg)


def test_keys_of_the_machine_pass_the_check():
    overrides = ["num_threads=2", "accelerator=cuda:7", "train.deterministic=True"]  # this machine may lack the device
    check_config(load_config(CONFIGS / "quickstart" / "grit-SPSE.yaml", overrides))


def test_key_that_nothing_reads_fails_the_check():
    with pytest.raises(ConfigError, match=r"optim\.momentum"):
        check_config(load_config(CONFIGS / "quickstart" / "grit-SPSE.yaml", ["optim.momentum=0.5"]))
