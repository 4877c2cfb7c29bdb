"""CSA's attention on packed pairs (Menegaux et al. 2023): every channel of a head has a softmax of its own.

score_ij[c] = <q_i^h, k_j^h> / sqrt(D/H) + A_ij[c] for each channel c of head h; alpha = softmax over j;
y_i[c] = sum_j m_ij alpha_ij[c] (v_j[c] + B_ij[c]), where A and B are maps of the pair features and m is dropout.
Receiver i is the query, sender j the key.
"""

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from graphgps_spse.models.csa_pairs import PairMap
from graphgps_spse.models.pairs import PairLayout


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
    mapped_PD = F.linear(given.z_PC, pair_map.map_DC)
    return mapped_PD.index_add(0, given.rows_E, pair_map.edge_ED.to(mapped_PD.dtype))


def _full(x: Tensor) -> Tensor:
    """Widen half precision, in which long sums and exponentials lose too much."""
    return x.float() if x.dtype.itemsize < 4 else x
