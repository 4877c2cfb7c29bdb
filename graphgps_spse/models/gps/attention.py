"""Multi-head attention among the nodes of each graph: the weights of one layer. ops/graph_attention computes it."""

from torch import Tensor

from graphgps_spse.models.modules.biased_attention import SelfAttention
from graphgps_spse.ops.dispatch import KernelUse, choose
from graphgps_spse.ops.graph_attention import GraphAttentionInput, NodeBlocks, attention_weights, graph_attention


class GraphAttention(SelfAttention):
    """Multi-head attention among the nodes of each graph, then a linear map."""

    def forward(self, x_ND: Tensor, blocks: NodeBlocks, weights: list[Tensor] | None = None) -> Tensor:
        """Return [N, D]. Attention weights [P, H] are appended to `weights`."""
        given = GraphAttentionInput(blocks, self.num_heads, self.qkv(x_ND), self.dropout if self.training else 0.0)
        if weights is not None:
            weights.append(attention_weights(given))
        return self.out(choose(graph_attention, self.kernels, given.qkv_NW)(given))

    def kernel_use(self) -> KernelUse:
        """Return the operation that the layer calls, and what chooses its kernels."""
        return KernelUse(graph_attention, self.kernels, self.qkv.weight, self.num_heads)
