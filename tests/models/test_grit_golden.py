"""GRIT against numbers of the official implementation: outputs, loss, gradients and BatchNorm buffers."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from official_names import our_name

from graphgps_spse.config import default_tree
from graphgps_spse.data.base import GraphBatch, GraphDataset
from graphgps_spse.data.zinc import Zinc
from graphgps_spse.models.build import build_model, count_parameters

ZINC_SPEC = Zinc(root=Path("datasets/ZINC"), subset=True, num_node_types=21, num_edge_types=4).spec
FILES = ("GRIT-ZINC", "GRIT-ZINC-edgecases")


class Golden:
    def __init__(self, path: Path) -> None:
        self.file = np.load(path)

    def __getitem__(self, key: str) -> torch.Tensor:
        return torch.from_numpy(self.file[key])

    def group(self, prefix: str) -> dict[str, torch.Tensor]:
        keys = [k for k in self.file.files if k.startswith(prefix + "/") and not k.endswith("padding")]
        return {our_name(k[len(prefix) + 1 :]): self[k] for k in keys}

    def model(self, dtype: torch.dtype) -> torch.nn.Module:
        encoding = SimpleNamespace(name="RRWP", dim_pair=21, dim_node=21)
        model = build_model(default_tree(), ZINC_SPEC, [encoding], 1)
        model.load_state_dict(self.group("param") | self.group("buffer"))
        return model.to(dtype)

    def batch(self, dtype: torch.dtype) -> GraphBatch:
        node_ptr = self["in/ptr"]
        sizes, graph_E = node_ptr.diff(), self["in/batch"][self["in/edge_index"][0]]
        assert bool((graph_E.diff() >= 0).all())
        edge_ptr = torch.cat([node_ptr.new_zeros(1), torch.bincount(graph_E, minlength=len(sizes)).cumsum(0)])
        pair_ptr = torch.cat([node_ptr.new_zeros(1), sizes.square().cumsum(0)])
        sender, receiver = self["in/rrwp_index"]
        graph = self["in/batch"][sender]
        rows = pair_ptr[graph] + (receiver - node_ptr[graph]) * sizes[graph] + sender - node_ptr[graph]
        pair = torch.zeros(int(pair_ptr[-1]), 21).index_add_(0, rows, self["in/rrwp_val"])
        dataset = GraphDataset(
            name="golden",
            split="train",
            x_NF=self["in/x"],
            edge_index_2E=self["in/edge_index"] - node_ptr[graph_E],
            edge_attr_EF=self["in/edge_attr"].reshape(-1, 1),
            y=self["in/y"].reshape(-1, 1).to(dtype),
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            pair={"RRWP": pair.to(dtype)},
            node={"RRWP": self["in/rrwp"].to(dtype)},
        )
        return dataset.batch(range(len(sizes)))


@pytest.fixture(scope="module", params=FILES)
def golden(request: pytest.FixtureRequest, shared_dir: Path) -> Golden:
    return Golden(shared_dir / "golden" / f"{request.param}.npz")


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    """Largest difference relative to the largest value."""
    error = (ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1e-30)
    assert error <= tolerance, f"relative error {error:.2e} > {tolerance:.0e}"


def test_every_official_tensor_has_a_place_and_the_count_is_published(golden):
    model = golden.model(torch.float64)
    ours = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert ours == {name: tuple(p.shape) for name, p in golden.group("param").items()}
    assert count_parameters(model) == 473_473


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_float64_output_and_loss(golden, mode):
    batch = golden.batch(torch.float64)
    out = golden.model(torch.float64).train(mode == "train")(batch)
    close(out, golden[f"f64/{mode}_out"][batch.index_B], 1e-9)
    close((out - batch.y).abs().mean(), golden[f"f64/{mode}_loss"], 1e-9)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_float32_output(golden, mode):
    batch = golden.batch(torch.float32)
    out = golden.model(torch.float32).train(mode == "train")(batch)
    close(out, golden[f"f32/{mode}_out"][batch.index_B], 1e-5)
    close(out, golden[f"f64/{mode}_out"][batch.index_B], 1e-5)


def test_float64_gradients_and_buffers(golden):
    model, batch = golden.model(torch.float64).train(), golden.batch(torch.float64)
    (model(batch) - batch.y).abs().mean().backward()
    gradients = golden.group("grad")
    norms = golden.group("f64/gradnorm")
    without = {name for name, norm in norms.items() if norm < 0}
    assert {name for name, p in model.named_parameters() if p.grad is None} == without
    assert len(without) == 4
    scale = max(float(norm) for norm in norms.values())
    for name, parameter in model.named_parameters():
        if name in without:
            continue
        theirs, norm = gradients[name].double(), float(norms[name])
        if norm < 1e-12 * scale:  # a bias before BatchNorm: exactly 0 but for rounding
            assert parameter.grad.norm() < 1e-12 * scale, name
        else:
            error = float((parameter.grad - theirs).norm()) / norm
            assert error < 1e-6, f"{name}: {error:.2e}"
    buffers = dict(model.named_buffers())
    for name, theirs in golden.group("f64/buffer_after").items():
        if not name.startswith("layers.9.norm_pair"):  # we skip the last pair update, whose statistics nothing reads
            close(buffers[name], theirs, 1e-6)
