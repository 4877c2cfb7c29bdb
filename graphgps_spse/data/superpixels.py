"""Superpixel graphs of MNIST and CIFAR10, as in the benchmark (Dwivedi et al. 2023).

Sums over the pixels of each superpixel give its mean colour and its centre. The centres of an image give the edges.
"""

from typing import NamedTuple

import numpy as np
import torch

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.pyg import compact_dtype
from graphgps_spse.jit import kernel

NUM_NEIGHBOURS = 8


class SuperpixelSums(NamedTuple):
    """Sums over the pixels of each superpixel of G images, as integer arrays, in the order of the images."""

    num_nodes_G: np.ndarray
    """[G] number of superpixels of each image."""
    label_G: np.ndarray
    """[G] class of each image."""
    count_N: np.ndarray
    """[N] number of pixels of each superpixel."""
    row_N: np.ndarray
    """[N] sum of the rows of the pixels, counted from 0."""
    col_N: np.ndarray
    """[N] sum of the columns of the pixels, counted from 0."""
    colour_NC: np.ndarray
    """[N, C] sum of the values of the pixels, 0 to 255, in each of 1 or 3 channels."""

    def of_images(self, first: int, last: int) -> "SuperpixelSums":
        """Return the superpixels of images first..last-1."""
        begin, end = int(self.num_nodes_G[:first].sum()), int(self.num_nodes_G[:last].sum())
        return SuperpixelSums(self.num_nodes_G[first:last], self.label_G[first:last], *(c[begin:end] for c in self[2:]))


def connect_superpixels(position_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return directed edges [2, E] int64, eight from each node, and their weights [E] float64.

    `position_N2` holds the centres in units of the side of the image. Weights are A_ij = exp(-(d_ij / sigma_i)^2),
    symmetrised, where sigma_i is the sum of the nine smallest distances of row i (including d_ii = 0) divided by 8.
    Graphs with up to nine nodes are complete.

    As in the benchmark, a partial sort finds the nine largest entries of each row, and the last of these in the order
    of the partial sort is dropped, which may be any of the nine. `argpartition_rows` is the partial sort of NumPy at
    the time of the benchmark. In current versions, the order depends on the processor: with vector instructions the
    nine entries are sorted, so that the nearest neighbour would always be dropped. The edges in the repository of the
    benchmark (visualization/superpixels_visualization_mnist.ipynb) are not sorted.
    """
    distance = np.sqrt(((position_N2[:, None] - position_N2[None]) ** 2).sum(-1))
    size = len(distance)
    num_kept = min(NUM_NEIGHBOURS + 1, size)
    sigma = np.sort(distance, axis=1)[:, :num_kept].sum(1, keepdims=True) / NUM_NEIGHBOURS + 1e-8
    weight = np.exp(-((distance / sigma) ** 2))
    weight = 0.5 * (weight + weight.T)
    np.fill_diagonal(weight, 0.0)
    if size <= NUM_NEIGHBOURS + 1:
        source, target = np.nonzero(~np.eye(size, dtype=bool))
    else:
        first = size - num_kept
        target = argpartition_rows(weight, first - 1)[:, first:-1].ravel()
        source = np.repeat(np.arange(size), NUM_NEIGHBOURS)
    return np.stack([source, target]), weight[source, target]


def superpixel_graphs(sums: SuperpixelSums, *, side: int, name: str, split: str) -> GraphDataset:
    """Return a split of superpixel graphs.

    Node features are the mean colour / 255 and the centre (row, column) / side; edge features are the weights A_ij. All
    are rounded to float16. The graphs are those of the benchmark, except that the benchmark shuffles the nodes.
    """
    position_N2 = np.stack([sums.row_N, sums.col_N], axis=1) / sums.count_N[:, None] / side
    colour_NC = sums.colour_NC / sums.count_N[:, None] / 255
    sizes_G = sums.num_nodes_G.astype(np.int64)
    node_ptr = np.concatenate([[0], np.cumsum(sizes_G)])
    edge_ptr = np.concatenate([[0], np.cumsum(sizes_G * np.minimum(sizes_G - 1, NUM_NEIGHBOURS))])
    edges_2E = np.empty((2, edge_ptr[-1]), compact_dtype(int(sizes_G.max(initial=0))))
    weight_E = np.empty(edge_ptr[-1], np.float16)
    for g in range(len(sizes_G)):
        rows = slice(edge_ptr[g], edge_ptr[g + 1])
        edges_2E[:, rows], weight_E[rows] = connect_superpixels(position_N2[node_ptr[g] : node_ptr[g + 1]])
    return GraphDataset(
        name=name,
        split=split,
        x_NF=torch.from_numpy(np.concatenate([colour_NC, position_N2], axis=1).astype(np.float16)),
        edge_index_2E=torch.from_numpy(edges_2E),
        edge_attr_EF=torch.from_numpy(weight_E[:, None]),
        y=torch.from_numpy(sums.label_G.astype(np.int64)[:, None]),
        node_ptr=torch.from_numpy(node_ptr),
        edge_ptr=torch.from_numpy(edge_ptr),
    )


@kernel
def argpartition_rows(values: np.ndarray, kth: int) -> np.ndarray:
    """Return np.argpartition(values, kth, axis=1), [N, M] int64, in the order of its scalar implementation.

    The algorithm is Hoare's selection with the median of three as pivot. It takes the same steps as np.argpartition
    without vector instructions, so that the order on both sides of `kth` is also the same.
    """
    num_rows, size = values.shape
    order = np.empty((num_rows, size), np.int64)
    for i in range(num_rows):
        order[i] = np.arange(size)
        if kth < 3:
            _select_smallest(values[i], order[i], kth)
        else:
            _select(values[i], order[i], kth)
    return order


@kernel
def _select_smallest(value: np.ndarray, order: np.ndarray, kth: int) -> None:
    for i in range(kth + 1):
        smallest = i
        for k in range(i + 1, len(order)):
            if value[order[k]] < value[order[smallest]]:
                smallest = k
        order[i], order[smallest] = order[smallest], order[i]


@kernel
def _select(value: np.ndarray, order: np.ndarray, kth: int) -> None:
    low, high = 0, len(order) - 1
    while low + 1 < high:
        middle = low + (high - low) // 2
        # The median of three goes to `low`, the smallest to `low + 1`, the largest to `high`, which bounds both scans.
        if value[order[high]] < value[order[middle]]:
            order[high], order[middle] = order[middle], order[high]
        if value[order[high]] < value[order[low]]:
            order[high], order[low] = order[low], order[high]
        if value[order[low]] < value[order[middle]]:
            order[low], order[middle] = order[middle], order[low]
        order[middle], order[low + 1] = order[low + 1], order[middle]
        pivot, left, right = value[order[low]], low + 1, high
        while True:
            left += 1
            while value[order[left]] < pivot:
                left += 1
            right -= 1
            while pivot < value[order[right]]:
                right -= 1
            if right < left:
                break
            order[left], order[right] = order[right], order[left]
        order[low], order[right] = order[right], order[low]
        if right >= kth:
            high = right - 1
        if right <= kth:
            low = left
    if high == low + 1 and value[order[high]] < value[order[low]]:
        order[high], order[low] = order[low], order[high]
