"""Targets of node pairs, for link prediction: a list of labelled pairs on disk, rows for all pairs in a batch."""

import numpy as np
import torch
from torch import Tensor

LABEL, QUERY, GRAPH = 0, 1, 2
"""Columns of the targets of a batch: 1 for a link, 0 for none, NaN if unknown; first node of the pair; graph."""


def spread_targets(
    label_R: Tensor, pairs_2R: Tensor, count_B: np.ndarray, size_B: np.ndarray, graph_B: np.ndarray
) -> Tensor:
    """Return the targets of all pairs of a batch, [P, 3] float32.

    The R labelled pairs are those of one graph after the other, `count_B` of each, with nodes numbered from 0 in each
    graph. Rows follow `PairLayout`: pair (i, j) of a graph with n nodes is row i * n + j of that graph. Columns are
    LABEL, QUERY and GRAPH; nodes and graphs keep their numbers in the split, which are exact below 2**24.
    """
    first_B = np.cumsum(size_B**2) - size_B**2
    first_R, size_R = (torch.from_numpy(np.repeat(values, count_B)) for values in (first_B, size_B))
    source_R, target_R = pairs_2R.long()
    y_P3 = torch.full((int((size_B**2).sum()), 3), torch.nan)
    y_P3[first_R + source_R * size_R + target_R, LABEL] = label_R.float()
    query_N = np.arange(size_B.sum()) - np.repeat(np.cumsum(size_B) - size_B, size_B)
    y_P3[:, QUERY] = torch.from_numpy(np.repeat(query_N, np.repeat(size_B, size_B))).float()
    y_P3[:, GRAPH] = torch.from_numpy(np.repeat(graph_B, size_B**2)).float()
    return y_P3
