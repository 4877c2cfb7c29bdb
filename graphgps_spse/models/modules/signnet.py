"""SignNet (Lim et al. 2023): node features from Laplacian eigenvectors that do not depend on their signs."""

from typing import Any, ClassVar, Self

from torch import Tensor, nn

from graphgps_spse.encodings.base import Encoding, SignNetEncoderOptions
from graphgps_spse.errors import ConfigError
from graphgps_spse.ops.edge_layout import EdgeLayout
from graphgps_spse.registry import positional_encoders


class NormedMLP(nn.Module):
    """Linear layers with ReLU and then BatchNorm between them, on the last dimension of a tensor."""

    def __init__(self, dim_in: int, dim_hidden: int, dim_out: int, num_layers: int) -> None:
        super().__init__()
        widths = (dim_in, *(dim_hidden,) * (num_layers - 1), dim_out)
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim_hidden) for _ in range(num_layers - 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return [.., dim_out]."""
        for linear, norm in zip(self.linears, self.norms):
            x = _normalise(norm, linear(x).relu())
        return self.linears[-1](x)


def _normalise(norm: nn.Module, x: Tensor) -> Tensor:
    """Apply a BatchNorm to the last dimension, with statistics over all others."""
    return norm(x.flatten(0, -2)).view_as(x)


class EigenvectorGIN(nn.Module):
    """GIN (Xu et al. 2019) on each eigenvector alone: layers MLP(x_i + sum_j x_j) over the edges j -> i."""

    def __init__(self, dim_hidden: int, dim_out: int, num_layers: int) -> None:
        super().__init__()
        widths = (1, *(dim_hidden,) * (num_layers - 1), dim_out)
        self.layers = nn.ModuleList(NormedMLP(a, dim_hidden, b, 2) for a, b in zip(widths, widths[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim_hidden) for _ in range(num_layers - 1))

    def forward(self, x_NFC: Tensor, edges: EdgeLayout) -> Tensor:
        """Return [N, F, dim_out] for [N, F, 1], where F is the number of eigenvectors."""
        for index, layer in enumerate(self.layers):
            if index:
                x_NFC = _normalise(self.norms[index - 1], x_NFC)
            message_NX = edges.sum_at_receivers(edges.at_senders(x_NFC.flatten(1))).to(x_NFC.dtype)
            x_NFC = layer(x_NFC + message_NX.view_as(x_NFC))
        return x_NFC


class SignInvariant(nn.Module):
    """rho of phi(v) + phi(-v) for each eigenvector v, where phi is a GIN and rho an MLP."""

    reads: ClassVar[str] = "eigenvectors"
    reads_edges: ClassVar[bool] = True
    takes_fillers: ClassVar[bool] = False
    """Its norms read rows of nodes and eigenvectors."""
    is_set: ClassVar[bool]
    """Whether rho reads the sum over eigenvectors, rather than all of them side by side."""

    def __init__(
        self, num_freqs: int, dim: int, *, dim_hidden: int, dim_phi: int, num_layers: int, num_post_layers: int
    ) -> None:
        super().__init__()
        self.num_freqs, self.dim = num_freqs, dim
        self.phi = EigenvectorGIN(dim_hidden, dim_phi, num_layers)
        self.rho = NormedMLP(dim_phi * (1 if self.is_set else num_freqs), dim_hidden, dim, num_post_layers)

    @classmethod
    def from_cfg(cls, cfg: Any, encoding: Encoding) -> Self:
        """Read the options of `posenc_SignNet`; `raw_norm_type` must be none."""
        section = f"posenc_{encoding.name}"
        options = SignNetEncoderOptions.from_cfg(cfg, section)
        if options.raw_norm_type != "none":
            raise ConfigError(f"{section}.raw_norm_type: SignNet does not normalise eigenvectors; it must be none")
        return cls(
            encoding.dim_node // 2,
            options.dim_pe,
            dim_hidden=options.phi_hidden_dim,
            dim_phi=options.phi_out_dim,
            num_layers=options.layers,
            num_post_layers=options.post_layers,
        )

    def forward(self, node_NC: Tensor, edges: EdgeLayout) -> Tensor:
        """Return [N, dim] for [N, 2 F]: F eigenvector entries, then F eigenvalues, which are not read.

        Missing eigenvectors of small graphs (NaN) are zeros. A sum leaves them out.
        """
        vector_NF = node_NC[:, : self.num_freqs]
        missing_NF1 = vector_NF.isnan().unsqueeze(2)
        x_NF1 = vector_NF.nan_to_num(0.0).unsqueeze(2)
        phi_NFC = self.phi(x_NF1, edges) + self.phi(-x_NF1, edges)
        return self.rho(phi_NFC.masked_fill(missing_NF1, 0.0).sum(1) if self.is_set else phi_NFC.flatten(1))


@positional_encoders.register("SignNetDeepSet")
class SignNetDeepSet(SignInvariant):
    """SignNet whose rho reads the sum over eigenvectors: any number of them."""

    is_set = True


@positional_encoders.register("SignNetMLP")
class SignNetMLP(SignInvariant):
    """SignNet whose rho reads the concatenation of all eigenvectors, in the order of their eigenvalues."""

    is_set = False
