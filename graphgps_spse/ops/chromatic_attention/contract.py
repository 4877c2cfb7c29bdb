"""Contract of the chromatic self-attention of CSA: equations, input, output and gradients.

For query i, key j and channel c of head h (Menegaux et al. 2023), each channel having a softmax of its own:

    score_ij[c] = <q_i, k_j over head h> + A_ij[c]         queries are scaled by 1 / sqrt(D / H) already
    alpha_ij[c] = softmax of score_ij[c] over j
    y_i[c] = sum_j m_ij alpha_ij[c] (v_j[c] + B_ij[c])     m: dropout mask of pairs

A and B are linear maps of the pair features, given in parts: a map of few channels z of every pair, and one of the raw
features of those pairs that are edges. Columns are ordered (position in head, head), as kernels read them fastest.

m is 0 with probability `dropout_rate` and otherwise 1 / (1 - dropout_rate). The implementation draws it from torch's
generator. reference.py draws each entry. cpu.py and cuda.py draw a seed, from which their kernels compute each entry
where they need it.

Gradients flow to q, k, v, both maps and the raw features of edges; z has none, as it is data. What backward keeps is
the implementation's choice: autograd keeps every step of the reference; cpu.py keeps arrays of the size of nodes and
computes A, B and alpha again.
"""

from typing import NamedTuple

from torch import Tensor

from graphgps_spse.ops.pair_layout import PairLayout


class PairMap(NamedTuple):
    """A linear map of the features of all pairs: z map^T, plus raw edge^T on the rows of the edges."""

    map_DC: Tensor
    edge_DR: Tensor


class ChromaticInput(NamedTuple):
    """One layer's input. Tensors have one type, float32 or float64; under autocast the reference may see others."""

    layout: PairLayout
    num_heads: int
    q_ND: Tensor
    k_ND: Tensor
    v_ND: Tensor
    z_PC: Tensor
    rows_E: Tensor
    """Pair rows of the edges, ascending; a row may occur twice."""
    raw_ER: Tensor
    """Raw features of the edges."""
    score: PairMap
    """A."""
    value: PairMap
    """B."""
    dropout_rate: float
    """Of pairs; 0 for no dropout."""
