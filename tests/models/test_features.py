import pytest
import torch

from graphgps_spse.data.base import InputSpec
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.registry import edge_encoders, node_encoders


def test_types_look_up_rows_of_the_first_column():
    encoder = node_encoders.get("TypeDictNode").from_spec(InputSpec("types", 3), 4)
    out = encoder(torch.tensor([[2, 9], [0, 9], [2, 9]]))
    assert torch.equal(out, encoder.embedding.weight[[2, 0, 2]])


def test_a_flat_column_of_types_is_accepted():
    encoder = edge_encoders.get("TypeDictEdge").from_spec(InputSpec("types", 3), 4)
    assert torch.equal(encoder(torch.tensor([1, 1])), encoder.embedding.weight[[1, 1]])


@pytest.mark.parametrize(
    ("registry", "name", "key"),
    [
        (node_encoders, "TypeDictNode", "dataset.node_encoder_num_types"),
        (edge_encoders, "TypeDictEdge", "dataset.edge_encoder_num_types"),
    ],
)
def test_a_type_without_a_vector_names_the_key_and_the_number_needed(registry, name, key):
    encoder = registry.get(name).from_spec(InputSpec("types", 3), 4)
    with pytest.raises(DataError, match=rf"type 7 is outside 0\.\.2; set {key} to at least 8"):
        encoder(torch.tensor([[0], [7]]))
    with pytest.raises(DataError, match="type -1 is negative"):
        encoder(torch.tensor([[0], [-1]]))


def test_no_edges_at_all_are_fine():
    encoder = edge_encoders.get("TypeDictEdge").from_spec(InputSpec("types", 3), 4)
    assert encoder(torch.zeros(0, 1, dtype=torch.int64)).shape == (0, 4)


def test_types_without_a_column_are_refused():
    encoder = edge_encoders.get("TypeDictEdge").from_spec(InputSpec("types", 3), 4)
    with pytest.raises(DataError, match="needs a feature column"):
        encoder(torch.zeros(5, 0, dtype=torch.int64))


def test_every_edge_gets_the_dummy_vector():
    encoder = edge_encoders.get("DummyEdge").from_spec(InputSpec("none", 0), 4)
    out = encoder(torch.zeros(3, 0))
    assert torch.equal(out, encoder.embedding.weight.repeat(3, 1))


@pytest.mark.parametrize(("registry", "name"), [(node_encoders, "LinearNode"), (edge_encoders, "LinearEdge")])
def test_linear_maps_all_columns(registry, name):
    encoder = registry.get(name).from_spec(InputSpec("floats", 2), 4)
    x = torch.tensor([[1.0, -2.0]])
    torch.testing.assert_close(encoder(x), x @ encoder.linear.weight.t() + encoder.linear.bias)


@pytest.mark.parametrize(("name", "kind"), [("TypeDictNode", "floats"), ("LinearNode", "types")])
def test_the_wrong_kind_of_feature_is_refused(name, kind):
    with pytest.raises(ConfigError, match=f"{name}.*features are {kind}"):
        node_encoders.get(name).from_spec(InputSpec(kind, 3), 4)
