"""Contract of GRIT's operations on the pairs of one layer: equations, input, output and gradients.

For query i, key j (Ma et al. 2023), with e the features of pairs and heads side by side:

    [w_ij | b_ij] = e_ij map^T + map_bias
    s_ij = (q_i + k_j) * w_ij                              elementwise
    h_ij = relu(sign(s_ij) sqrt|s_ij| + b_ij)              h for "e hat", the hidden features of the pair
    logit_ij = sum over the head of h_ij * a               one number for each head, clamped to [-clamp, clamp]
    alpha_ij = softmax of logit_ij over j
    value_i = sum_j m_ij alpha_ij v_j                      m: dropout mask of attention weights
    pair_i = sum_j m_ij alpha_ij h_ij
    u_ij = e_ij + (n_ij * h_ij) out^T + out_bias           n: dropout mask of hidden features
    mean, var = column statistics of u over all pairs

The pair features of a layer are not stored: they are e = u * scale + shift, where u is what the previous layer returned
and scale and shift are its BatchNorm. Columns of width D are ordered (position in head, head), those of W = 2D
(w then b, position in head, head).

An entry of m is 0 with probability `attention_dropout_rate` and otherwise 1 / (1 - rate), and so is n with
`pair_dropout_rate`. The implementation draws them from torch's generator, m before n. reference.py draws each entry.
cpu.py and cuda.py draw two seeds, from which their kernels compute each entry where they need it.

Gradients flow to every tensor. A logit that was clamped passes no gradient; the root has gradient 0 at 0.
What backward keeps is the implementation's choice: autograd keeps every step of the reference; cpu.py keeps u, the next
u, alpha, which logits were clamped, and the inputs, and computes h again.
"""

from typing import NamedTuple

from torch import Tensor

from graphgps_spse.ops.pair_layout import PairLayout


class PairStream(NamedTuple):
    """The features of all pairs, e = u * scale + shift; None for no scale and no shift."""

    u_PD: Tensor
    scale_D: Tensor | None = None
    shift_D: Tensor | None = None


class PairWeights(NamedTuple):
    """One layer's weights on pairs."""

    map_WD: Tensor
    """[2D, D] of e to [w | b]."""
    map_bias_W: Tensor
    logit_D: Tensor
    """The vector a of all heads."""
    out_DD: Tensor | None
    """[D, D] of h to the update of pairs; None in the last layer, whose pair features nothing reads."""
    out_bias_D: Tensor | None


class GritInput(NamedTuple):
    """One layer's input. Tensors have one type, float32 or float64; under autocast the reference may see others."""

    layout: PairLayout
    num_heads: int
    pairs: PairStream
    q_ND: Tensor
    k_ND: Tensor
    v_ND: Tensor
    weights: PairWeights
    clamp: float
    """Bound of the logits, at least 0; infinity for none."""
    attention_dropout_rate: float
    """Of attention weights; 0 for no dropout."""
    pair_dropout_rate: float
    """Of hidden features on their way into the update; 0 for no dropout."""
    with_statistics: bool
    """Whether to return mean and variance of the next u."""


class GritOutput(NamedTuple):
    """One layer's output: sums over keys for nodes, and the next pairs."""

    value_ND: Tensor
    pair_ND: Tensor
    u_PD: Tensor | None
    """None without `weights.out_DD`."""
    mean_D: Tensor | None
    """None without `with_statistics`."""
    var_D: Tensor | None
    """Biased variance; None without `with_statistics`."""
