import pytest
import torch
from model_graphs import ENCODINGS, MAX_DISTANCE, NUM_STEPS, SPEC, as_type, encoding, random_graphs

from graphgps_spse.config import default_tree
from graphgps_spse.data.base import DatasetSpec, InputSpec
from graphgps_spse.errors import ConfigError
from graphgps_spse.models.encoders import (
    PairChannels,
    PairEmbedding,
    PairLinear,
    build_edge_encoder,
    build_node_encoder,
    check_all_used,
)
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


def one_hot(distance_R1):
    """One column for each distance 0..MAX_DISTANCE."""
    return (distance_R1 == torch.arange(MAX_DISTANCE + 1)).double()


def test_encodings_of_edges_stand_side_by_side():
    """Against a concatenation by hand: walks, paths without the identity, distances one-hot, rings as they are."""
    chosen = [ENCODINGS[name] for name in ("walks", "SPSE", "SPD", "Rings")]
    encoder = build_edge_encoder(config(edge="TypeDictEdge+RWSE+SPSE+SPD+Rings"), SPEC, chosen, 8).double()
    batch = random_graphs((4, 5)).batch([0, 1])
    out = encoder(batch, PairLayout(batch.sizes))
    u, v = batch.edge_index_2E
    rows = torch.where(u < 4, u * 4 + v, 16 + (u - 4) * 5 + v - 4)
    pair = {name: values[rows] for name, values in batch.pair.items()}
    by_hand = torch.cat([pair["RWSE"], pair["SPSE"][:, 1:], one_hot(pair["SPD"]), pair["Rings"]], dim=1)
    assert encoder.pairs.linear.weight.shape == (4, NUM_STEPS + NUM_STEPS - 1 + MAX_DISTANCE + 1 + 1)
    assert torch.equal(out[:, 4:], encoder.pairs.linear(by_hand))
    assert torch.equal(out[:, :4], encoder.raw(batch.edge_attr_EF))


def test_the_order_is_that_of_the_name():
    chosen = [ENCODINGS["walks"], ENCODINGS["SPSE"]]
    pairs = build_edge_encoder(config(edge="TypeDictEdge+SPSE+RWSE"), SPEC, chosen, 8).pairs
    assert [e.name for e in pairs.channels.encodings] == ["SPSE", "RWSE"]


def test_channels_with_identities():
    batch = random_graphs((4, 5)).batch([0, 1])
    channels = PairChannels([ENCODINGS["RRWP"], ENCODINGS["SPSE"]], identity=True)
    assert torch.equal(channels(batch.pair), torch.cat([batch.pair["RRWP"], batch.pair["SPSE"]], dim=1))
    assert channels.number == 2 * NUM_STEPS + 1


def test_none_behind_the_plus_is_no_encoding():
    assert build_edge_encoder(config(edge="TypeDictEdge+None"), SPEC, [], 8).pairs is None


def test_the_identity_of_one_encoding_gets_a_zero_column():
    pairs = PairLinear([ENCODINGS["SPSE"]], 2)
    assert pairs.weight().shape == (2, NUM_STEPS) and not pairs.weight()[:, 0].any()
    assert pairs.linear.weight.shape == (2, NUM_STEPS - 1)
    assert PairLinear([ENCODINGS["walks"]], 2).weight().detach().all()


@pytest.mark.parametrize(
    ("node", "edge", "encodings", "message"),
    [
        (
            "TypeDictNode+RWSE",
            "none",
            [],
            r"\+RWSE reads the node part .* which is off; set posenc_RWSE.enable=True$",
        ),
        ("TypeDictNode+RWES", "none", ["RWSE"], r"node_encoder_name: \+RWES names no encoding. Did you mean 'RWSE'"),
        ("TypeDictNod+RWSE", "none", ["RWSE"], "Did you mean 'TypeDictNode'"),
        ("TypeDictNode+SPSE", "none", ["SPSE"], "which is off; set posenc_SPSE.node_pe=cycles"),
        ("TypeDictNode+SPD", "none", ["SPD"], r"SPD has no node part that \+SPD could read; remove \+SPD"),
        ("TypeDictNode+RWSE+RWSE", "none", ["RWSE"], r"dataset.node_encoder_name: .* names RWSE twice"),
        ("TypeDictNode", "TypeDictEdge+SPSE", [], "which is off; set posenc_SPSE.enable=True$"),
        ("TypeDictNode", "TypeDictEdge+RWSE", [], "set posenc_RWSE.enable=True and posenc_RWSE.enable_edges=True$"),
        ("TypeDictNode", "TypeDictEdge+RWSE+SPSE", ["RWSE", "SPSE"], "off; set posenc_RWSE.enable_edges=True$"),
        ("TypeDictNode", "TypeDictEdge+LapPE", ["LapPE"], r"LapPE has no pair part that \+LapPE could read; remove"),
        ("TypeDictNode", "TypeDictEdg", [], "Did you mean 'TypeDictEdge'"),
    ],
)
def test_names_that_do_not_fit(node, edge, encodings, message):
    encodings = [ENCODINGS[name] for name in encodings]
    with pytest.raises(ConfigError, match=message):
        build_node_encoder(config(node, edge), SPEC, encodings, 16)
        build_edge_encoder(config(node, edge), SPEC, encodings, 16)


@pytest.mark.parametrize(
    ("names", "node_names", "pair_names", "reads_edges", "message"),
    [
        (["LapPE"], [], [], True, "nothing reads the node part of LapPE: set posenc_LapPE.enable=False, or add .LapPE"),
        (["SPSE"], [], [], True, r"pair part of SPSE: set posenc_SPSE.enable=False, or add \+SPSE to dataset.edge_enc"),
        (
            ["SPSE"],
            [],
            [],
            False,
            "pair part of SPSE: set posenc_SPSE.enable=False, or take a gt.layer_type",
        ),
        (["walks"], ["RWSE"], [], True, "pair part of RWSE: set posenc_RWSE.enable_edges=False, or add"),
        (["RRWP"], ["RRWP"], [], True, ""),
        (["RRWP"], [], ["RRWP"], True, ""),
    ],
)
def test_encodings_that_nothing_reads_are_named(names, node_names, pair_names, reads_edges, message):
    def check():
        chosen = [ENCODINGS[name] for name in names]
        check_all_used(chosen, node_names=node_names, pair_names=pair_names, reads_edges=reads_edges)

    if not message:
        check()
        return
    with pytest.raises(ConfigError, match=message):
        check()


def test_paths_that_nothing_reads_are_named():
    """The node part of SPSE is that of random walks by default, so reading it alone reads no paths."""
    paths = encoding("SPSE", 4, 4, node_pe="rwse")
    with pytest.raises(ConfigError, match=r"nothing reads the path counts of SPSE.*add \+SPSE to dataset.edge_encoder"):
        check_all_used([paths], node_names=["SPSE"], pair_names=[])
    check_all_used([paths], node_names=["SPSE"], pair_names=["SPSE"])
    with pytest.raises(ConfigError, match="nothing reads the node part of SPSE: set posenc_SPSE.node_pe=none"):
        check_all_used([paths], node_names=[], pair_names=["SPSE"])


def test_encodings_must_leave_a_column_for_raw_features():
    with pytest.raises(ConfigError, match="gt.dim_hidden=3 leaves no column.*posenc_RWSE.dim_pe=3"):
        build_node_encoder(config("TypeDictNode+RWSE"), SPEC, [ENCODINGS["RWSE"]], 3)


def test_the_node_part_of_any_encoding_is_read_by_its_name():
    paths = encoding("SPSE", 0, 5)
    encoder = build_node_encoder(config("TypeDictNode+SPSE"), SPEC, [paths], 20)
    assert tuple(encoder.parts["SPSE"].linear.weight.shape) == (16, 5)


def test_a_distance_reads_its_own_vector_and_what_is_farther_none():
    pairs = PairEmbedding(encoding("SPD", 1, 0, max_length=2), 3)
    far_R1 = torch.tensor([[0.0], [2.0], [-1.0], [1.0], [3.0]])
    vectors = pairs.embedding.weight
    expected = torch.stack([vectors[0], vectors[2], torch.zeros(3), vectors[1], torch.zeros(3)])
    channels = pairs.channels({"SPD": far_R1})
    torch.testing.assert_close(pairs(channels), expected)
    torch.testing.assert_close(channels @ pairs.weight().t() + pairs.constant(), expected)


def test_edges_read_distances_too():
    encoder = build_edge_encoder(config(edge="TypeDictEdge+SPD"), SPEC, [ENCODINGS["SPD"]], 8).double()
    batch = random_graphs((4, 5)).batch([0, 1])
    assert isinstance(encoder.pairs, PairEmbedding) and encoder(batch, PairLayout(batch.sizes)).shape[1] == 8
