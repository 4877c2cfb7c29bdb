"""GRIT's attention (Ma et al. 2023): the weights of one layer. ops/grit_pairs computes attention and pair update."""

import torch
from torch import Tensor, nn

from graphgps_spse.models.grit.pair_norm import PairNorm
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.grit_pairs import GritInput, PairStream, PairWeights, attention_weights, grit_pairs
from graphgps_spse.ops.pair_layout import PairLayout


class GritAttention(nn.Module):
    """The weights of one attention: s = (q_i + k_j) * w_ij, e^_ij = relu(signed root of s + b_ij), softmax over j.

    Shapes are the official code's: `pair` maps e to (head, w then b, position in head), `logit` is [D/H, H, 1] and
    `mix` [D/H, H, D/H]. `forward` brings columns into the kernels' order, (position in head, head).
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
        out: nn.Linear | None,
        dropout: float,
        norm: PairNorm,
        attention: list[Tensor] | None = None,
    ) -> tuple[Tensor, PairStream | None]:
        """Return the attention output, [N, D] by position, and the updated pairs; None for pairs if `out` is None.

        Attention weights [P, H] are appended to `attention`.
        """
        dim, heads = x_ND.shape[1], self.num_heads
        maps = torch.cat([linear.weight for linear in (self.query, self.key, self.value)])
        maps = maps.unflatten(0, (3, heads, -1)).transpose(1, 2).flatten(0, 2)  # (part, position in head, head)
        bias = nn.functional.pad(by_position(self.query.bias, heads), (0, 2 * dim))
        q_ND, k_ND, v_ND = nn.functional.linear(x_ND, maps, bias).chunk(3, dim=1)
        weights = PairWeights(
            map_WD=by_position(self.pair.weight, heads, parts=2),
            map_bias_W=by_position(self.pair.bias, heads, parts=2),
            logit_D=self.logit.flatten(),
            out_DD=None if out is None else by_position(out.weight.t(), heads).t(),
            out_bias_D=None if out is None else out.bias,
        )
        given = GritInput(
            layout=layout,
            num_heads=heads,
            pairs=stream,
            q_ND=q_ND,
            k_ND=k_ND,
            v_ND=v_ND,
            weights=weights,
            clamp=self.clamp,
            attention_dropout_rate=self.dropout if self.training else 0.0,
            pair_dropout_rate=dropout if self.training and out is not None else 0.0,
            with_statistics=out is not None and norm.training,
        )
        if attention is not None:
            attention.append(attention_weights(given))
        result = choose(grit_pairs, self.kernels, q_ND)(given)
        x_ND = torch.addmm(result.value_ND, result.pair_ND, self._mix_by_position())
        if result.u_PD is None:
            return x_ND, None
        return x_ND, PairStream(result.u_PD, *norm(result.mean_D, result.var_D, layout.num_pairs))

    def _mix_by_position(self) -> Tensor:
        """Return `mix` as a matrix [D, D], zero between different heads: a large product is faster than many small."""
        return (self.mix.unsqueeze(-1) * self.same_head).flatten(2).flatten(0, 1)

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(grit_pairs, self.kernels, self.query.weight, self.num_heads)


def by_position(weight: Tensor, num_heads: int, parts: int = 1) -> Tensor:
    """Bring rows ordered (head, part, position in head) into the order "by position", (part, position in head, head).

    The kernels have this order.
    """
    rows = weight.unflatten(0, (num_heads, parts, -1))
    return rows.permute(1, 2, 0, *range(3, rows.dim())).flatten(0, 2)
