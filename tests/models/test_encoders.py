from types import SimpleNamespace

import pytest
import torch
from model_graphs import ENCODINGS, SPEC, as_type, random_graphs

from graphgps_spse.config import default_tree
from graphgps_spse.data.base import DatasetSpec, InputSpec
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.encoders import PairDistance, PairLinear, build_edge_encoder, build_node_encoder
from graphgps_spse.ops.pair_layout import PairLayout


def config(node: str = "TypeDictNode", edge: str = "TypeDictEdge"):
    tree = default_tree()
    tree.dataset.node_encoder_name, tree.dataset.edge_encoder_name = node, edge
    tree.posenc_RWSE.dim_pe, tree.posenc_LapPE.dim_pe = 3, 2
    return tree


def test_raw_features_come_first_then_encodings_in_the_order_of_the_name():
    encodings = [ENCODINGS["RWSE"], ENCODINGS["LapPE"]]
    encoder = build_node_encoder(config("TypeDictNode+LapPE+RWSE"), SPEC, encodings, 9).eval()
    batch = as_type(random_graphs((4, 5)).batch([0, 1]), torch.float32)
    out = encoder(batch)
    torch.testing.assert_close(out[:, :4], encoder.raw(batch.x_NF))
    torch.testing.assert_close(out[:, 4:6], encoder.parts["LapPE"](batch.node["LapPE"]))
    torch.testing.assert_close(out[:, 6:], encoder.parts["RWSE"](batch.node["RWSE"]))


def test_an_encoding_alone_stands_beside_a_linear_map_of_the_raw_features():
    spec = DatasetSpec(**vars(SPEC) | {"node_input": InputSpec("floats", 7)})
    encoder = build_node_encoder(config("RWSE"), spec, [ENCODINGS["RWSE"]], 9)
    assert tuple(encoder.raw.linear.weight.shape) == (6, 7)


def test_edges_read_the_row_of_sender_and_receiver_without_the_identity():
    encoder = build_edge_encoder(config(edge="TypeDictEdge+SPSE"), SPEC, [ENCODINGS["SPSE"]], 8).double()
    batch = random_graphs((4, 5)).batch([0, 1])
    out = encoder(batch, PairLayout(batch.sizes))
    assert tuple(encoder.pairs.linear.weight.shape) == (4, 3)
    for edge, (u, v) in enumerate(batch.edge_index_2E.t().tolist()):
        row = u * 4 + v if u < 4 else 16 + (u - 4) * 5 + v - 4
        expected = [
            encoder.raw(batch.edge_attr_EF[edge : edge + 1]),
            encoder.pairs.linear(batch.pair["SPSE"][row, 1:])[None],
        ]
        torch.testing.assert_close(out[edge : edge + 1], torch.cat(expected, dim=1))


def test_none_behind_the_plus_is_no_encoding():
    assert build_edge_encoder(config(edge="TypeDictEdge+None"), SPEC, [], 8).pairs is None


def test_the_identity_gets_a_zero_column():
    pairs = PairLinear("SPSE", 4, 2, has_identity=True)
    assert pairs.weight().shape == (2, 4) and not pairs.weight()[:, 0].any()
    assert torch.equal(
        PairLinear("RWSE", 4, 2, has_identity=False).weight().detach().isfinite(), torch.ones(2, 4).bool()
    )


@pytest.mark.parametrize(
    ("node", "edge", "encodings", "message"),
    [
        ("TypeDictNode+RWSE", "none", [], "set posenc_RWSE.enable=True"),
        ("TypeDictNode+RWES", "none", ["RWSE"], "reads the node part of RWES"),
        ("TypeDictNod+RWSE", "none", ["RWSE"], "Did you mean 'TypeDictNode'"),
        ("TypeDictNode", "TypeDictEdge+SPSE", [], "set posenc_SPSE.enable=True"),
        ("TypeDictNode", "TypeDictEdg", [], "Did you mean 'TypeDictEdge'"),
    ],
)
def test_names_that_do_not_fit(node, edge, encodings, message):
    encodings = [ENCODINGS[name] for name in encodings]
    with pytest.raises(ConfigError, match=message):
        build_node_encoder(config(node, edge), SPEC, encodings, 8)
        build_edge_encoder(config(node, edge), SPEC, encodings, 8)


def test_encodings_must_leave_a_column_for_raw_features():
    with pytest.raises(ConfigError, match="gt.dim_hidden=3 leaves no column.*posenc_RWSE.dim_pe=3"):
        build_node_encoder(config("TypeDictNode+RWSE"), SPEC, [ENCODINGS["RWSE"]], 3)


def test_every_positional_encoder_is_reached_by_its_encodings_name():
    encoding = SimpleNamespace(name="SPSE", dim_pair=0, dim_node=5, has_identity=True)
    encoder = build_node_encoder(config("TypeDictNode+SPSE"), SPEC, [encoding], 20)
    assert tuple(encoder.parts["SPSE"].linear.weight.shape) == (16, 5)


def test_a_distance_reads_its_own_vector_and_what_is_farther_none():
    pairs = PairDistance("SPD", 2, 3)
    far_R1 = torch.tensor([[0.0], [2.0], [-1.0], [1.0], [3.0]])
    vectors = pairs.embedding.weight
    expected = torch.stack([vectors[0], vectors[2], torch.zeros(3), vectors[1], torch.zeros(3)])
    torch.testing.assert_close(pairs(far_R1), expected)
    torch.testing.assert_close(pairs.channels(far_R1) @ pairs.weight().t() + pairs.constant(), expected)


def test_edges_read_distances_too():
    tree = config(edge="TypeDictEdge+SPD")
    tree.posenc_SPD.max_length = 3
    encoder = build_edge_encoder(tree, SPEC, [ENCODINGS["SPD"]], 8).double()
    batch = random_graphs((4, 5)).batch([0, 1])
    assert isinstance(encoder.pairs, PairDistance) and encoder(batch, PairLayout(batch.sizes)).shape[1] == 8
