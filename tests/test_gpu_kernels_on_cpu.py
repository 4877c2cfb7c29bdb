"""What a machine without a GPU checks of the kernels for GPUs."""

from pathlib import Path

import pytest

from graphgps_spse import gpu_kernels_on_cpu
from graphgps_spse.config import load_config
from graphgps_spse.gpu_kernels_on_cpu import dim_and_heads, interpret, take_step_without_values
from graphgps_spse.models.grit.attention import GritAttention

CONFIGS = Path(__file__).parents[1] / "configs"
SMALL = ["gt.layers=1", "gt.dim_hidden=12", "gnn.dim_inner=12", "gt.n_heads=3"]


def test_a_step_without_values(monkeypatch):
    pytest.importorskip("triton", reason="the kernels need Triton")
    cfg = load_config(CONFIGS / "GRIT/cluster-RWSE.yaml", SMALL)
    assert take_step_without_values(cfg) == ""
    forward = GritAttention.forward

    def waiting(self, x, *given):
        return forward(self, x * float(x.sum()), *given)

    monkeypatch.setattr(GritAttention, "forward", waiting)
    assert "it may wait for the device: " in take_step_without_values(cfg)


def test_kernels_are_interpreted_in_a_separate_process(tmp_path):
    pytest.importorskip("triton", reason="the kernels need Triton")
    small = "gt: {dim_hidden: 12, n_heads: 3}\ngnn: {dim_inner: 12}\n"
    files = [tmp_path / "GRIT" / name for name in ("small.yaml", "same.yaml")]
    files[0].parent.mkdir()
    for file in files:
        file.write_text(f"base: {CONFIGS}/GRIT/cluster-RWSE.yaml\n{small}")
    (row,) = interpret([*files, CONFIGS / "GNNPlus/zinc-RRWP.yaml"])  # one of two equal layers; a model without kernels
    assert row["configuration"] == "GRIT/small.yaml"
    assert all(error["kernels"] < 1e-5 for error in row["errors"].values())
    assert row["errors"]["gradient"]["kernels"] != row["errors"]["gradient"]["plain"], "the kernels were run"


def test_a_dead_interpreter_is_a_finding(monkeypatch):
    monkeypatch.setattr(gpu_kernels_on_cpu, "INTERPRET", "raise SystemExit(3)")
    (row,) = interpret([CONFIGS / "GRIT/cluster-RWSE.yaml"])
    assert row["failure"] == "ended with 3" and not row["errors"]


@pytest.mark.parametrize(
    "file, shape", [("Graphormer/zinc-RRWP.yaml", (80, 8)), ("GRIT/zinc-RWSE.yaml", (64, 8))], ids=["own keys", "gt"]
)
def test_width_and_heads(file, shape):
    assert dim_and_heads(load_config(CONFIGS / file)) == shape
