"""GRIT's attention (Ma et al. 2023): the weights of one layer. ops/grit_pairs computes attention and pair update."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphgps_spse.models.grit.pair_norm import PairNorm
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.grit_pairs import GritInput, PairStream, PairWeights, attention_weights, grit_pairs
from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.ops.row_linear import row_linear
from graphgps_spse.ops.segments import widened


class LayerWeights(NamedTuple):
    """One layer's weights, columns of width D ordered (position in head, head)."""

    nodes_WD: Tensor
    """[3D, D] of x to [q | k | v]."""
    nodes_bias_W: Tensor
    """[3D], zero for k and v."""
    pairs: PairWeights
    mix_DD: Tensor
    """[D, D] of the sum of hidden features, zero between different heads: a large product is faster than many small."""
    degree_D2: Tensor
    """[D, 2] of the degree scaler: its own part, and that by degree."""
    out_node_DD: Tensor


class GritAttention(nn.Module):
    """The weights of one attention: s = (q_i + k_j) * w_ij, e^_ij = relu(signed root of s + b_ij), softmax over j.

    Shapes are the official code's: `pair` maps e to (head, w then b, position in head), `logit` is [D/H, H, 1] and
    `mix` [D/H, H, D/H]. layer_weights.py brings columns into the kernels' order, (position in head, head).
    """

    same_head: Tensor

    def __init__(self, dim: int, num_heads: int, *, clamp: float, dropout: float, kernels: str = "auto") -> None:
        super().__init__()
        dim_head = dim // num_heads
        self.num_heads, self.clamp, self.dropout, self.kernels = num_heads, clamp, dropout, kernels
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.pair = nn.Linear(dim, 2 * dim)
        self.logit = nn.Parameter(torch.empty(dim_head, num_heads, 1))
        self.mix = nn.Parameter(torch.empty(dim_head, num_heads, dim_head))
        self.register_buffer(  # torch.eye would import PyTorch's compiler on the device "meta"
            "same_head", torch.zeros(num_heads, num_heads).fill_diagonal_(1).unsqueeze(1), persistent=False
        )
        for weight in (self.query.weight, self.key.weight, self.value.weight, self.pair.weight, self.logit, self.mix):
            nn.init.xavier_normal_(weight)

    def forward(
        self,
        x_ND: Tensor,
        stream: PairStream,
        layout: PairLayout,
        weights: LayerWeights,
        dropout: float,
        norm: PairNorm,
        attention: list[Tensor] | None = None,
    ) -> tuple[Tensor, PairStream | None]:
        """Return the attention output, [N, D] by position, and the updated pairs; None if nothing reads them.

        `weights` are those of `weights_of`. Attention weights [P, H] are appended to `attention`.
        """
        updates, moments_of = weights.pairs.out_DD is not None, norm.moments_of if norm.training else None
        q_ND, k_ND, v_ND = row_linear(x_ND, weights.nodes_WD, weights.nodes_bias_W).chunk(3, dim=1)
        given = GritInput(
            layout=layout,
            num_heads=self.num_heads,
            pairs=stream,
            q_ND=q_ND,
            k_ND=k_ND,
            v_ND=v_ND,
            weights=weights.pairs,
            clamp=self.clamp,
            attention_dropout_rate=self.dropout if self.training else 0.0,
            pair_dropout_rate=dropout if self.training and updates else 0.0,
            with_statistics=updates and norm.training and moments_of is None,
        )
        if attention is not None:
            attention.append(attention_weights(given))
        result = choose(grit_pairs, self.kernels, q_ND)(given)
        x_ND = torch.addmm(result.value_ND, result.pair_ND, weights.mix_DD)
        if result.u_PD is None:
            return x_ND, None
        if moments_of is not None:
            return x_ND, PairStream(result.u_PD, *norm(*moments_of(widened(result.u_PD))))
        return x_ND, PairStream(result.u_PD, *norm(result.mean_D, result.var_D, layout.num_pairs))

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(grit_pairs, self.kernels, self.query.weight, self.num_heads)
