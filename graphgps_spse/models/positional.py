"""Encoders of node encodings: what `+RWSE` or `+LapPE` in `dataset.node_encoder_name` appends to the raw features.

A class registered as a positional encoder is built as `Encoder.from_cfg(cfg, encoding)`. It has a width, `dim`, and
maps the node part of the encoding of its name, [N, dim_node], to [N, dim].
"""

from typing import Any, Self

import torch
from torch import Tensor, nn

from graphgps_spse.encodings.base import Encoding
from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import positional_encoders


class WalkEncoder(nn.Module):
    """BatchNorm of the raw values over all nodes of the batch, if asked for, then a linear map."""

    key: str
    """The config section."""

    def __init__(self, num_channels: int, dim: int, *, raw_norm: bool) -> None:
        super().__init__()
        self.dim = dim
        self.raw_norm = nn.BatchNorm1d(num_channels) if raw_norm else None
        self.linear = nn.Linear(num_channels, dim)

    @classmethod
    def from_cfg(cls, cfg: Any, encoding: Encoding) -> Self:
        """Read the section's `model`, `dim_pe` and `raw_norm_type`."""
        section = getattr(cfg, cls.key)
        if section.model.lower() != "linear":
            raise ConfigError(f"{cls.key}.model: '{section.model}' is not supported; it must be Linear")
        kind = section.raw_norm_type.lower()
        if kind not in ("none", "batchnorm"):
            raise ConfigError(f"{cls.key}.raw_norm_type: '{section.raw_norm_type}' is neither BatchNorm nor none")
        return cls(encoding.dim_node, section.dim_pe, raw_norm=kind == "batchnorm")

    def forward(self, node_NC: Tensor) -> Tensor:
        """Return [N, dim]."""
        return self.linear(node_NC if self.raw_norm is None else self.raw_norm(node_NC))


@positional_encoders.register("RWSE")
class RWSEEncoder(WalkEncoder):
    """Return probabilities of random walks, by a linear map."""

    key = "posenc_RWSE"


@positional_encoders.register("RRWP")
class RRWPEncoder(WalkEncoder):
    """The diagonal of RRWP: return probabilities, the identity's 1 included, by a linear map."""

    key = "posenc_RRWP"


@positional_encoders.register("SPSE")
class SPSEEncoder(WalkEncoder):
    """The node part of SPSE (`posenc_SPSE.node_pe`), by a linear map."""

    key = "posenc_SPSE"


@positional_encoders.register("LapPE")
class LapPEEncoder(nn.Module):
    """Laplacian eigenvectors as a set: sum over frequencies f of MLP(v_f(node), lambda_f) (Rampasek et al. 2022).

    An eigenvector's sign is arbitrary, so in training each frequency's is drawn anew for every batch.
    """

    def __init__(self, num_freqs: int, dim: int, *, num_layers: int) -> None:
        super().__init__()
        self.num_freqs, self.dim = num_freqs, dim
        widths = (2, *(2 * dim,) * (num_layers - 1), dim)
        self.mlp = nn.Sequential(*(m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.ReLU())))

    @classmethod
    def from_cfg(cls, cfg: Any, encoding: Encoding) -> Self:
        """Read `posenc_LapPE`: `model` (DeepSet), `dim_pe`, `layers`, `raw_norm_type` (none)."""
        section = cfg.posenc_LapPE
        for key, value, known in (
            ("model", section.model, "DeepSet"),
            ("raw_norm_type", section.raw_norm_type, "none"),
        ):
            if value.lower() != known.lower():
                raise ConfigError(f"posenc_LapPE.{key}: '{value}' is not supported; it must be {known}")
        if section.layers < 1:
            raise ConfigError(f"posenc_LapPE.layers: {section.layers} is below 1")
        return cls(encoding.dim_node // 2, section.dim_pe, num_layers=section.layers)

    def forward(self, node_NC: Tensor) -> Tensor:
        """Return [N, dim] for [N, 2 F]: F eigenvector entries, then F eigenvalues; NaN beyond a small graph's last."""
        vector_NF, value_NF = node_NC.unflatten(1, (2, self.num_freqs)).unbind(1)
        if self.training:
            vector_NF = vector_NF * (
                2 * torch.rand(self.num_freqs, device=node_NC.device).ge(0.5).to(node_NC.dtype) - 1
            )
        missing_NF = vector_NF.isnan() | value_NF.isnan()
        token_NF2 = torch.stack([vector_NF, value_NF], dim=2).masked_fill(missing_NF.unsqueeze(2), 0.0)
        return self.mlp(token_NF2).masked_fill(missing_NF.unsqueeze(2), 0.0).sum(1)
