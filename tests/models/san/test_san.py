"""SAN beyond its twin: a graph by hand, its edges and other pairs, its published sizes, and what is refused."""

import math

import pytest
import torch
from model_graphs import ENCODINGS, SIZES, SPEC, random_graphs, shaken
from small_configs import san_config

from graphgps_spse.errors import ConfigError
from graphgps_spse.models.build import build_model, count_parameters
from graphgps_spse.models.san.attention import OtherPairs, SpectralAttention
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.ops.pair_layout import PairLayout


def test_three_nodes_by_hand():
    """One head of one column, x = 1, 2, 3, all maps the identity but the values: edges 0 -> 1 (e = 2) twice, 2 -> 1."""
    edge_index_2E, layout = torch.tensor([[0, 0, 2], [1, 1, 1]]), PairLayout((3,))
    attention = SpectralAttention(1, 1, gamma=0.5, full_graph=True)
    for parameter in attention.parameters():
        torch.nn.init.ones_(parameter)
    attention.value.weight.data.fill_(10)
    edges, e_ED = EdgeLayout(edge_index_2E, 3), torch.tensor([[2.0], [2.0], [-1.0]])
    others = OtherPairs.of(edge_index_2E, layout, torch.float32)
    assert others.masks[0][0, 0].tolist() == [[0, 1, 1], [0, 0, 0], [1, 1, 0]]
    out = attention(torch.tensor([[1.0], [2.0], [3.0]]), e_ED, edges, torch.tensor([[1.0]]), others)
    edge, other = (lambda logit: math.exp(logit) / 1.5), (lambda logit: 0.5 * math.exp(logit) / 1.5)
    mean = lambda pairs: 10 * sum(w * x for w, x in pairs) / (sum(w for w, _ in pairs) + 1e-6)  # noqa: E731
    expected = [
        mean([(other(2), 2), (other(3), 3)]),
        mean([(edge(4), 1), (edge(4), 1), (edge(-5), 3)]),  # 3 * 2 * -1 is clamped
        mean([(other(3), 1), (other(5), 2)]),  # 2 * 3 is clamped
    ]
    torch.testing.assert_close(out[:, 0], torch.tensor(expected))


def test_every_parameter_learns_with_dropout():
    model = shaken(build_model(san_config(dropout=0.2), SPEC, [ENCODINGS["LapPE"]], 1)).train()
    model(random_graphs().batch(range(len(SIZES)))).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_attention_along_edges_has_fewer_maps_and_no_cost_of_pairs():
    full, sparse = (build_model(san_config(full_graph=on), SPEC, [ENCODINGS["LapPE"]], 1) for on in (True, False))
    assert count_parameters(full) - count_parameters(sparse) == 2 * 3 * 12 * 12 + 12
    assert (full.values_kept_of_pair, sparse.values_kept_of_pair) == (2 * 2 * 3, 0)


def test_heads_of_the_encoder_must_divide_its_columns():
    tree = san_config()
    tree.posenc_LapPE.n_heads = 3
    with pytest.raises(ConfigError, match=r"posenc_LapPE\.n_heads=3 does not divide posenc_LapPE\.dim_pe=4"):
        build_model(tree, SPEC, [ENCODINGS["LapPE"]], 1)
