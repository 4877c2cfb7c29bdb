"""Encoders of raw node and edge features: what enters the first layer beside the encodings.

A class registered as a node or edge encoder is built as `Encoder.from_spec(input_spec, dim)` and maps rows of raw
features to rows of `dim` columns.
"""

import math

from torch import Tensor, nn

from graphgps_spse.data.base import InputSpec
from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.registry import edge_encoders, node_encoders


class TypeEmbedding(nn.Module):
    """One learned vector per type; the type is the first feature column. Weights start as N(0, 1)."""

    key: str
    """The config key that holds the number of types, for messages."""

    def __init__(self, num_types: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_types, dim)

    @classmethod
    def from_spec(cls, spec: InputSpec, dim: int) -> "TypeEmbedding":
        """Build from what the data set says of the column. Raises ConfigError unless it holds types."""
        if spec.kind != "types":
            raise ConfigError(f"{cls.__name__} reads integer types, but this data set's features are {spec.kind}")
        return cls(spec.size, dim)

    def forward(self, x_NF: Tensor) -> Tensor:
        """Return [N, dim]. Raises DataError for a type without a vector (checked on the CPU, where it is cheap)."""
        if x_NF.numel() == 0 and x_NF.shape[0]:
            raise DataError(f"{type(self).__name__} needs a feature column; this data set has none")
        type_N = x_NF.reshape(x_NF.shape[0], math.prod(x_NF.shape[1:]))[:, 0]
        num_types = self.embedding.num_embeddings
        if type_N.device.type == "cpu" and type_N.numel():
            low, high = (int(bound) for bound in type_N.aminmax())
            if low < 0:
                raise DataError(f"type {low} is negative; types for {type(self).__name__} count from 0")
            if high >= num_types:
                raise DataError(f"type {high} is outside 0..{num_types - 1}; set {self.key} to at least {high + 1}")
        return self.embedding(type_N)


@node_encoders.register("TypeDictNode")
class TypeDictNode(TypeEmbedding):
    """One learned vector per node type."""

    key = "dataset.node_encoder_num_types"


@edge_encoders.register("TypeDictEdge")
class TypeDictEdge(TypeEmbedding):
    """One learned vector per edge type."""

    key = "dataset.edge_encoder_num_types"


class LinearFeatures(nn.Module):
    """A linear map with bias of all feature columns."""

    def __init__(self, num_columns: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_columns, dim)

    @classmethod
    def from_spec(cls, spec: InputSpec, dim: int) -> "LinearFeatures":
        """Build from what the data set says of its columns. Raises ConfigError unless they are numbers."""
        if spec.kind != "floats":
            raise ConfigError(f"{cls.__name__} reads numbers, but this data set's features are {spec.kind}")
        return cls(spec.size, dim)

    def forward(self, x_NF: Tensor) -> Tensor:
        """Return [N, dim]."""
        return self.linear(x_NF)


@node_encoders.register("LinearNode")
class LinearNode(LinearFeatures):
    """A linear map of numeric node features."""


@edge_encoders.register("LinearEdge")
class LinearEdge(LinearFeatures):
    """A linear map of numeric edge features."""


@edge_encoders.register("DummyEdge")
class DummyEdge(nn.Module):
    """One learned vector for every edge, whatever its features."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    @classmethod
    def from_spec(cls, spec: InputSpec, dim: int) -> "DummyEdge":
        """Build; the features are not read."""
        return cls(dim)

    def forward(self, edge_EF: Tensor) -> Tensor:
        """Return [E, dim]; only the number of rows is read."""
        return self.embedding.weight.expand(edge_EF.shape[0], -1)
