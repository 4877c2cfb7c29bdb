"""Attention weights: their sum over keys is 1, and with them the equations give what the fused kernels return."""

import torch
from test_chromatic_attention import attention_input
from test_grit_pairs import DIM_HEAD, pair_input

from graphgps_spse.ops import chromatic_attention, graph_attention, grit_pairs
from graphgps_spse.ops.dispatch import choose
from graphgps_spse.ops.pair_layout import PairLayout


def assert_rows_sum_to_one(layout, alpha):
    sums = layout.sum_keys(alpha)
    torch.testing.assert_close(sums, torch.ones_like(sums))


def test_weights_of_grit():
    given, _ = pair_input("evaluation")
    alpha_PH = grit_pairs.attention_weights(given)
    assert_rows_sum_to_one(given.layout, alpha_PH)
    fused = choose(grit_pairs.grit_pairs, "fused", given.q_ND)(given)
    value_ND = given.layout.sum_keys(alpha_PH.repeat(1, DIM_HEAD) * given.layout.at_keys(given.v_ND))
    torch.testing.assert_close(value_ND, fused.value_ND)
    dropped, _ = pair_input("dropout")
    kept = dropped._replace(attention_dropout_rate=0.0)
    assert torch.equal(grit_pairs.attention_weights(dropped), grit_pairs.attention_weights(kept)), "before dropout"


def test_weights_of_csa():
    given, _ = attention_input("plain")
    alpha_PD = chromatic_attention.attention_weights(given)
    assert_rows_sum_to_one(given.layout, alpha_PD)
    pair_PD = given.z_PC @ given.value.map_DC.t()
    pair_PD = pair_PD.index_add(0, given.rows_E, given.raw_ER @ given.value.edge_DR.t())
    y_ND = given.layout.sum_keys(alpha_PD * (given.layout.at_keys(given.v_ND) + pair_PD))
    fused = choose(chromatic_attention.chromatic_attention, "fused", given.q_ND)
    torch.testing.assert_close(y_ND, fused(given))


def test_weights_of_gps():
    sizes, heads, dim = (1, 2, 5, 5, 30), 2, 6
    torch.manual_seed(0)
    qkv_NW = torch.randn(sum(sizes), 3 * dim, dtype=torch.float64)
    given = graph_attention.GraphAttentionInput(graph_attention.NodeBlocks(PairLayout(sizes)), heads, qkv_NW, 0.0)
    layout, alpha_PH = PairLayout(sizes), graph_attention.attention_weights(given)
    assert alpha_PH.shape == (layout.num_pairs, heads)
    assert_rows_sum_to_one(layout, alpha_PH)
    by_head = alpha_PH.repeat_interleave(dim // heads, dim=1)
    y_ND = layout.sum_keys(by_head * layout.at_keys(qkv_NW[:, 2 * dim :]))
    torch.testing.assert_close(y_ND, choose(graph_attention.graph_attention, "fused", qkv_NW)(given))
