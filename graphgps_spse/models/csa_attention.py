"""CSA's attention on packed pairs (Menegaux et al. 2023): every channel of a head has a softmax of its own.

score_ij[c] = <q_i^h, k_j^h> / sqrt(D/H) + A_ij[c] for each channel c of head h; alpha = softmax over j;
y_i[c] = sum_j m_ij alpha_ij[c] (v_j[c] + B_ij[c]), where A and B are maps of the pair features and m is dropout.
Receiver i is the query, sender j the key.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.models.csa_pairs import PairMap
from graphgps_spse.models.pairs import PairBlock, PairLayout

BLOCK_ROWS = 1024


class AttentionInput(NamedTuple):
    """What one layer's attention reads; queries are scaled already."""

    q_ND: Tensor
    k_ND: Tensor
    v_ND: Tensor
    z_PC: Tensor
    rows_E: Tensor
    score: PairMap
    """A."""
    value: PairMap
    """B."""
    keep_P: Tensor | None
    """Dropout of pairs: 0 or 1 / (1 - rate), [P, 1]; None for none."""


def plain_attention(given: AttentionInput, layout: PairLayout, num_heads: int) -> Tensor:
    """Return y, [N, D], from the equations; for any device, also under autocast."""
    score_PD, value_PD = (_mapped(given, pair_map) for pair_map in (given.score, given.value))
    product_PD = layout.at_receivers(given.q_ND) * layout.at_senders(given.k_ND)
    dot_PH = product_PD.unflatten(1, (num_heads, -1)).sum(2)
    score_PD = _full((score_PD.unflatten(1, (num_heads, -1)) + dot_PH.unsqueeze(2)).flatten(1))
    weight_PD = (score_PD - layout.at_receivers(layout.max_senders(score_PD.detach()))).exp()
    total_ND = layout.sum_senders(weight_PD)
    weight_PD = weight_PD if given.keep_P is None else weight_PD * given.keep_P
    return layout.sum_senders(weight_PD * (layout.at_senders(given.v_ND) + value_PD)) / total_ND


def _mapped(given: AttentionInput, pair_map: PairMap) -> Tensor:
    map_DC, bias_D, edge_ED = pair_map
    mapped_PD = F.linear(given.z_PC, map_DC, bias_D)
    return mapped_PD.index_add(0, given.rows_E, edge_ED.to(mapped_PD.dtype))


def _full(x: Tensor) -> Tensor:
    """Widen half precision, in which long sums and exponentials lose too much."""
    return x.float() if x.dtype.itemsize < 4 else x


def is_blockwise(x: Tensor) -> bool:
    """Whether `blocked_attention` can and should work on tensors like x: on the CPU, where blocks stay in cache."""
    exact = x.dtype in (torch.float32, torch.float64)
    return (
        x.device.type == "cpu" and exact and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    )


def blocked_attention(given: AttentionInput, layout: PairLayout, num_heads: int) -> Tensor:
    """Return the same y, a block of pairs at a time, with a hand-written derivative.

    A, B and the softmax weights never exist for all pairs: only the logarithm of each softmax's denominator is kept,
    [N, D], and backward computes the rest again. z has no gradient here, as it is data.
    """
    q, k, v, z, rows, score, value, keep = given
    return _BlockedAttention.apply(layout, num_heads, z, rows, keep, q, k, v, *score, *value)


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, layout: PairLayout, heads: int, z: Tensor, rows: Tensor, keep: Tensor | None, q: Tensor, k: Tensor,
        v: Tensor, map_a: Tensor, bias_a: Tensor, edge_a: Tensor, map_b: Tensor, bias_b: Tensor, edge_b: Tensor,
    ) -> Tensor:  # fmt: skip
        blocks = _Blocks(layout, heads, z, rows, keep, q, k, v, (map_a, bias_a, edge_a), (map_b, bias_b, edge_b))
        y, log_total = torch.empty_like(q), torch.empty_like(q)
        for block in blocks:
            x, u = block.scores(), block.values()
            top = x.amax(2, keepdim=True)
            x.sub_(top).exp_()
            total = x.sum(2)
            block.of_receivers(log_total).copy_(total.log() + top.squeeze(2))
            if block.keep is not None:
                x.mul_(block.keep)
            block.of_receivers(y).copy_(x.mul_(u).sum(2).div_(total))
        ctx.layout, ctx.heads = layout, heads
        ctx.save_for_backward(z, rows, keep, q, k, v, map_a, bias_a, edge_a, map_b, bias_b, edge_b, y, log_total)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        z, rows, keep, q, k, v, map_a, bias_a, edge_a, map_b, bias_b, edge_b, y, log_total = ctx.saved_tensors
        blocks = _Blocks(
            ctx.layout, ctx.heads, z, rows, keep, q, k, v, (map_a, bias_a, edge_a), (map_b, bias_b, edge_b)
        )
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grads = [torch.zeros_like(t) for t in (map_a, bias_a, edge_a, map_b, bias_b, edge_b)]
        for block in blocks:
            alpha = block.scores().sub_(block.of_receivers(log_total).unsqueeze(2)).exp_()
            u = block.values()
            grad_b = alpha.mul_(block.of_receivers(grad_y).unsqueeze(2))
            if block.keep is not None:
                u.mul_(block.keep)
            grad_x = u.sub_(block.of_receivers(y).unsqueeze(2)).mul_(grad_b)
            if block.keep is not None:
                grad_b.mul_(block.keep)
            block.of_senders(grad_v).add_(grad_b.sum(1))
            block.dot_backward(grad_x, grad_q, grad_k)
            block.map_backward(grad_x, *grads[:3])
            block.map_backward(grad_b, *grads[3:])
        return None, None, None, None, None, grad_q, grad_k, grad_v, *grads


class _Blocks:
    """One layer's tensors, to be walked block by block."""

    def __init__(
        self, layout: PairLayout, heads: int, z: Tensor, rows: Tensor, keep: Tensor | None,
        q: Tensor, k: Tensor, v: Tensor, score: tuple[Tensor, ...], value: tuple[Tensor, ...],
    ) -> None:  # fmt: skip
        self.z, self.rows, self.keep, self.q, self.k, self.v = z, rows, keep, q, k, v
        self.score, self.value, self.heads = score, value, heads
        self.of_head = torch.eye(heads, dtype=q.dtype).repeat_interleave(q.shape[1] // heads, dim=1)
        """[H, D], 1 where a channel belongs to a head: sums over channels and their gradients as matrix products."""
        self.blocks = layout.blocks(BLOCK_ROWS)
        starts = [block.start for block in self.blocks] + [layout.num_pairs]
        self.edge_starts = torch.searchsorted(rows, torch.tensor(starts)).tolist()

    def __iter__(self) -> Any:
        return (_Block(self, *parts) for parts in zip(self.blocks, self.edge_starts, self.edge_starts[1:]))


class _Block:
    """Some graphs of one size, or some receivers of one graph: tensors [graphs, receivers, senders, D]."""

    def __init__(self, layer: _Blocks, place: PairBlock, first_edge: int, last_edge: int) -> None:
        self.layer, self.place, self.edges = layer, place, slice(first_edge, last_edge)
        self.rows = layer.rows[self.edges] - place.start
        self.z = layer.z[place.start : place.stop]
        self.keep = None if layer.keep is None else layer.keep[place.start : place.stop].view(*place.shape, 1)

    def of_receivers(self, x: Tensor) -> Tensor:
        """View rows of nodes as [graphs, receivers, D]."""
        graphs, receivers, _ = self.place.shape
        return x[self.place.receiver : self.place.receiver + graphs * receivers].view(graphs, receivers, -1)

    def of_senders(self, x: Tensor) -> Tensor:
        """View rows of nodes as [graphs, senders, D]."""
        graphs, _, senders = self.place.shape
        return x[self.place.sender : self.place.sender + graphs * senders].view(graphs, senders, -1)

    def by_head(self, x: Tensor) -> Tensor:
        """View [graphs, nodes, D] as [graphs, H, nodes, D/H]."""
        return x.unflatten(2, (self.layer.heads, -1)).transpose(1, 2)

    def mapped(self, pair_map: tuple[Tensor, ...]) -> Tensor:
        map_dc, bias, edge = pair_map
        mapped = torch.addmm(bias, self.z, map_dc.t())
        return mapped.index_add_(0, self.rows, edge[self.edges])

    def scores(self) -> Tensor:
        """Return <q_i, k_j> + A_ij."""
        q, k = self.by_head(self.of_receivers(self.layer.q)), self.by_head(self.of_senders(self.layer.k))
        dot = (q @ k.transpose(2, 3)).permute(0, 2, 3, 1).reshape(-1, self.layer.heads)
        return self.mapped(self.layer.score).addmm_(dot, self.layer.of_head).view(*self.place.shape, -1)

    def values(self) -> Tensor:
        """Return v_j + B_ij."""
        value = self.mapped(self.layer.value).view(*self.place.shape, -1)
        return value.add_(self.of_senders(self.layer.v).unsqueeze(1))

    def dot_backward(self, grad_x: Tensor, grad_q: Tensor, grad_k: Tensor) -> None:
        """Write the gradient of q, and add that of k, given that of the scores."""
        q, k = self.by_head(self.of_receivers(self.layer.q)), self.by_head(self.of_senders(self.layer.k))
        dot = (grad_x.flatten(0, 2) @ self.layer.of_head.t()).view(*self.place.shape, -1).permute(0, 3, 1, 2)
        self.of_receivers(grad_q).copy_((dot @ k).transpose(1, 2).flatten(2))
        self.of_senders(grad_k).add_((dot.transpose(2, 3) @ q).transpose(1, 2).flatten(2))

    def map_backward(self, grad: Tensor, grad_map: Tensor, grad_bias: Tensor, grad_edge: Tensor) -> None:
        """Add the gradients of one map of the pair features."""
        flat = grad.flatten(0, 2)
        grad_map.addmm_(flat.t(), self.z)
        grad_bias.add_(flat.sum(0))
        grad_edge[self.edges] = flat[self.rows]
