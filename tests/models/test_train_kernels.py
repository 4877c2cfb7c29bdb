"""`train.kernels`: read by every model, refused where a device has no kernels, and no part of a run's identity."""

import pytest
import test_csa
import test_gps
import test_grit
import torch
from model_graphs import ENCODINGS, SPEC

from graphgps_spse.config import load_config
from graphgps_spse.errors import ConfigError
from graphgps_spse.identity import identity_of
from graphgps_spse.models.build import build_model, prepare_kernels

MODELS = {
    "GRIT": (test_grit.small_config, ["RRWP"]),
    "CSA": (test_csa.small_config, ["walks"]),
    "GPS": (test_gps.small_config, ["RWSE"]),
}


def build(name: str, kernels: str) -> torch.nn.Module:
    config, encodings = MODELS[name]
    return build_model(config(kernels=kernels), SPEC, [ENCODINGS[e] for e in encodings], 1)


@pytest.mark.parametrize("name", MODELS)
def test_the_key_reaches_every_layer(name):
    assert {layer.attention.kernels for layer in build(name, "plain").layers} == {"plain"}


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_prepared_for_the_device_of_the_model(name):
    prepare_kernels(build(name, "fused"))
    prepare_kernels(build(name, "auto").to("meta"))
    with pytest.raises(ConfigError, match=r"train\.kernels: fused, but for \w+ there is no kernel for meta"):
        prepare_kernels(build(name, "fused").to("meta"))


def test_an_unknown_value_names_the_known_ones(tmp_path):
    (tmp_path / "a.yaml").write_text("train: {kernels: fast}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:1.*train\.kernels: 'fast' is none of auto, plain, fused"):
        load_config(tmp_path / "a.yaml")


def test_a_run_may_be_resumed_with_other_kernels():
    assert identity_of({"train": {"kernels": "plain", "batch_size": 3}}) == {"train.batch_size": 3}
