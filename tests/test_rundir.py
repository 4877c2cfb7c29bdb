"""Run directories: opened once, refused when they are another run's, never emptied."""

import json
import os
import socket
import subprocess
import sys

import pytest

from graphgps_spse.errors import RunDirError
from graphgps_spse.rundir import RunDir, free_name

CONFIG = {"seed": 0, "gt": {"layers": 2}, "num_workers": 0, "wandb": {"mode": "disabled"}, "train": {"mode": "custom"}}


def test_reopens_with_the_same_config_and_keeps_files(tmp_path):
    path = tmp_path / "exp" / "0"
    with RunDir.open(path, CONFIG) as run_dir:
        (path / "mine.txt").write_text("kept")
        assert not run_dir.is_finished
        run_dir.keep_environment({"host": "a"})
    with RunDir.open(path, CONFIG) as run_dir:
        run_dir.keep_environment({"host": "b"})
    assert (path / "mine.txt").read_text() == "kept"
    assert [s["host"] for s in json.loads((path / "env.json").read_text())["sessions"]] == ["a", "b"]
    assert not (path / "run.lock").exists()


def trained(path):
    """A run directory that has reached its first checkpoint."""
    RunDir.open(path, CONFIG).close()
    (path / "checkpoint.pt").write_bytes(b"state")


def test_a_run_that_never_began_gives_way_to_a_corrected_config(tmp_path):
    RunDir.open(tmp_path / "0", CONFIG).close()
    RunDir.open(tmp_path / "0", {**CONFIG, "gt": {"layers": 3}}).close()
    assert "layers: 3" in (tmp_path / "0" / "config.yaml").read_text()


def test_another_config_is_refused_with_the_differing_keys(tmp_path):
    trained(tmp_path / "0")
    with pytest.raises(RunDirError, match=r"gt\.layers: 2 there, 3 here") as error:
        RunDir.open(tmp_path / "0", {**CONFIG, "gt": {"layers": 3}})
    assert "--fresh" in str(error.value) and "seed" not in str(error.value)
    RunDir.open(tmp_path / "0", CONFIG).close()  # the refusal left no lock


def test_how_a_run_is_carried_out_may_change(tmp_path):
    trained(tmp_path / "0")
    RunDir.open(tmp_path / "0", {**CONFIG, "num_workers": 4, "wandb": {"mode": "offline"}}).close()
    assert "num_workers: 0" in (tmp_path / "0" / "config.yaml").read_text()  # as the run began


def test_second_process_is_refused_and_a_dead_one_is_not(tmp_path):
    path = tmp_path / "0"
    path.mkdir()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (path / "run.lock").write_text(f"{socket.gethostname()} {sleeper.pid} -")
        with pytest.raises(RunDirError, match="in use"):
            RunDir.open(path, CONFIG)
    finally:
        sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie, which answers kill(pid, 0)
    with RunDir.open(path, CONFIG):
        assert str(os.getpid()) in (path / "run.lock").read_text()
    sleeper.wait()
    (path / "run.lock").write_text(f"{socket.gethostname()} {sleeper.pid} -")
    RunDir.open(path, CONFIG).close()


def test_lock_of_another_host(tmp_path, monkeypatch):
    path = tmp_path / "0"
    path.mkdir()
    (path / "run.lock").write_text("elsewhere.invalid 1 77")
    with pytest.raises(RunDirError, match="elsewhere.invalid"):
        RunDir.open(path, CONFIG)
    monkeypatch.setenv("SLURM_JOB_ID", "77")  # the same job, requeued on this host
    RunDir.open(path, CONFIG).close()


def test_unwritable_place(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="out_dir"):
        RunDir.open(tmp_path / "file" / "0", CONFIG)


def test_damaged_config_is_said(tmp_path):
    trained(tmp_path / "0")
    (tmp_path / "0" / "config.yaml").write_text("[broken")
    with pytest.raises(RunDirError, match="fresh"):
        RunDir.open(tmp_path / "0", CONFIG)


def test_free_name(tmp_path):
    assert free_name(tmp_path, "exp") == "exp"
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp-2").mkdir()
    assert free_name(tmp_path, "exp") == "exp-3"
