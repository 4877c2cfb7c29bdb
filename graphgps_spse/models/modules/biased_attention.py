"""Multi-head attention with a bias for each pair: the weights of one layer. ops/biased_attention computes it."""

from typing import NamedTuple

from torch import Tensor, nn

from graphgps_spse.ops.biased_attention import BiasedAttentionInput, attention_weights, biased_attention
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.graph_attention import NodeBlocks


class BiasedPairs(NamedTuple):
    """The pairs of a batch, the same for the attention of every layer."""

    blocks: NodeBlocks
    bias_PH: Tensor
    """Added to the logits, in the order of PairLayout."""


class SelfAttention(nn.Module):
    """Linear maps of multi-head self-attention; subclasses attend.

    Initial weights are those of torch.nn.MultiheadAttention: the stacked maps Xavier-uniform, biases zero.
    """

    def __init__(self, dim: int, num_heads: int, *, dropout: float, kernels: str = "auto") -> None:
        super().__init__()
        self.num_heads, self.dropout, self.kernels = num_heads, dropout, kernels
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.out.bias)


class BiasedAttention(SelfAttention):
    """Multi-head attention with a bias for each pair and head."""

    def forward(self, x_ND: Tensor, pairs: BiasedPairs, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Attention weights [P, H] are appended to `weights`."""
        qkv_NW = self.qkv(x_ND)
        rate = self.dropout if self.training else 0.0
        given = BiasedAttentionInput(pairs.blocks, self.num_heads, qkv_NW, pairs.bias_PH, None, rate)
        if weights is not None:
            weights.append(attention_weights(given))
        return self.out(choose(biased_attention, self.kernels, qkv_NW)(given))

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(biased_attention, self.kernels, self.qkv.weight, self.num_heads)
