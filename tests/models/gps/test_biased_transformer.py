"""GPS with BiasedTransformer beyond what its twin shows: attention weights, gradients, and layers without norms."""

import pytest
import torch
from model_graphs import ENCODINGS, SIZES, SPEC, random_graphs, shaken
from small_configs import gps_config

from graphgps_spse.models.build import build_model
from graphgps_spse.ops.pair_layout import PairLayout

EVERY = range(len(SIZES))


@pytest.mark.parametrize("tokens", [True, False])
def test_attention_weights_of_a_query_add_up_to_one(tokens):
    tree = gps_config("biased")
    tree.graphormer.use_graph_token, tree.train.kernels = tokens, "plain"
    model = shaken(build_model(tree, SPEC, [ENCODINGS[name] for name in ("RWSE", "SPD", "SPSE")], 1)).eval()
    batch = random_graphs().batch(EVERY)
    out, weights = model(batch, return_attention=True)
    layout = PairLayout(tuple(size + tokens for size in batch.sizes))  # the pairs of tokens too
    for alpha_PH in weights:
        assert alpha_PH.shape == (layout.num_pairs, 3) and alpha_PH.min() >= 0
        torch.testing.assert_close(layout.sum_keys(alpha_PH), torch.ones(layout.num_nodes, 3).to(alpha_PH))
    torch.testing.assert_close(model(batch), out, rtol=0, atol=0)


def test_every_parameter_learns():
    tree = gps_config("biased", attn_dropout=0.2, dropout=0.1)
    model = shaken(build_model(tree, SPEC, [ENCODINGS[name] for name in ("RWSE", "SPD", "SPSE")], 1)).train()
    model(random_graphs().batch(EVERY)).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_layers_without_norms_have_only_those_inside_the_parts():
    tree = gps_config("without norms")
    tree.posenc_RWSE.raw_norm_type = "none"
    model = build_model(tree, SPEC, [ENCODINGS["RWSE"]], 1)
    assert not any(isinstance(module, torch.nn.BatchNorm1d) for module in model.modules())
