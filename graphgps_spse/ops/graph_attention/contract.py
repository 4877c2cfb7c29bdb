"""Contract of multi-head attention among the nodes of each graph: equations, input, output and gradients.

For query i, key j of the same graph and each head:

    alpha_ij = softmax of <q_i, k_j> / sqrt(D / H) over j
    y_i = sum_j m_ij alpha_ij v_j                          m: dropout mask of attention weights

m is 0 with probability `dropout_rate` and otherwise 1 / (1 - dropout_rate). The implementation draws it from torch's
generator: reference.py draws it block by block; cpu.py and cuda.py draw a seed, from which their kernels compute each
entry where they need it.

Gradients flow to q, k and v. What backward keeps is the implementation's choice, or PyTorch's.
"""

from typing import NamedTuple

from torch import Tensor

from graphgps_spse.ops.graph_attention.node_blocks import NodeBlocks


class GraphAttentionInput(NamedTuple):
    """One layer's input."""

    blocks: NodeBlocks
    num_heads: int
    qkv_NW: Tensor
    """[N, 3D]: columns (q then k then v, head, position in head)."""
    dropout_rate: float
    """0 for no dropout."""
