"""Contract of attention with a bias and a gate for each pair: equations, input, output and gradients.

For query i, key j of the same graph and each head:

    alpha_ij = softmax of <q_i, k_j> / sqrt(D / H) + b_ij over j
    y_i = sum_j m_ij g_ij alpha_ij v_j                     m: dropout mask of attention weights

The bias b stands before the softmax, the gate g after it, so gated weights need not add up to 1. m is 0 with
probability `dropout_rate` and otherwise 1 / (1 - dropout_rate), drawn as in graph_attention.

Gradients flow to q, k, v, b and g. What backward keeps is the implementation's choice.
"""

from typing import NamedTuple

from torch import Tensor

from graphgps_spse.ops.graph_attention import NodeBlocks


class BiasedAttentionInput(NamedTuple):
    """One layer's input."""

    blocks: NodeBlocks
    num_heads: int
    qkv_NW: Tensor
    """[N, 3D]: columns (q then k then v, head, position in head)."""
    bias_PH: Tensor
    """b, in the order of PairLayout."""
    gate_PH: Tensor | None
    """g, in the same order; None for 1."""
    dropout_rate: float
    """0 for no dropout."""
