"""`model(batch, return_attention=True)`: the same output, and the weights of each layer from both paths."""

import pytest
import torch
from model_graphs import SIZES, random_graphs
from test_every_model import CASES

from graphgps_spse.ops.pair_layout import PairLayout


@pytest.mark.parametrize("name", ["GRIT-SPSE", "CSA-walks", "CSA-shared", "GPS-GINE", "GPS-SPSE"])
@pytest.mark.parametrize("training", [False, True])
def test_the_output_stays_and_both_paths_give_the_same_weights(name, training):
    batch, found = random_graphs().batch(range(len(SIZES))), {}
    for kernels in ("fused", "plain"):
        model = CASES[name]._replace(kernels=kernels).build(dropout=0.0, attn_dropout=0.0).train(training)
        alone = model(batch)
        found[kernels] = output, weights = model(batch, return_attention=True)
        torch.testing.assert_close(output, alone, rtol=1e-12, atol=1e-12)
        layout, num_columns = (
            PairLayout(batch.sizes),
            12 if name.startswith("CSA") else model.layers[0].attention.num_heads,
        )
        assert [alpha.shape for alpha in weights] == [(layout.num_pairs, num_columns)] * len(model.layers)
        for alpha in weights:
            assert alpha.min() >= 0
            torch.testing.assert_close(layout.sum_keys(alpha), torch.ones(layout.num_nodes, num_columns).to(alpha))
    torch.testing.assert_close(found["fused"], found["plain"], rtol=1e-9, atol=1e-9)


def test_layers_without_attention_have_no_weights():
    model = CASES["GPS-local only"].build().eval()
    assert model(random_graphs().batch([0, 1]), return_attention=True)[1] == []
