"""Superpixel graphs of MNIST and CIFAR10, built as the benchmark built them (Dwivedi et al. 2023).

A superpixel is known by sums over its pixels; from these follow its colour, its centre and, from all the centres of an
image, the edges.
"""

from typing import NamedTuple

import numpy as np
import torch

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.data.pyg import compact_dtype
from graphgps_spse.jit import kernel

NUM_NEIGHBOURS = 8


class SuperpixelSums(NamedTuple):
    """Superpixels of some images, those of an image after those of the image before, as integers."""

    num_nodes_G: np.ndarray
    """[G] superpixels of each image."""
    label_G: np.ndarray
    """[G] class of each image."""
    count_N: np.ndarray
    """[N] pixels of each superpixel."""
    row_N: np.ndarray
    """[N] sum of the rows of its pixels, counted from 0."""
    col_N: np.ndarray
    """[N] sum of their columns."""
    colour_NC: np.ndarray
    """[N, C] sum of their values, 0 to 255, in each of 1 or 3 channels."""

    def of_images(self, first: int, last: int) -> "SuperpixelSums":
        """Return those of images first to last - 1."""
        begin, end = int(self.num_nodes_G[:first].sum()), int(self.num_nodes_G[:last].sum())
        return SuperpixelSums(self.num_nodes_G[first:last], self.label_G[first:last], *(c[begin:end] for c in self[2:]))


def connect_superpixels(position_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges [2, E] int64, eight from each node, directed, and their weights [E] float64.

    `position_N2` are the centres in units of the image's side. A_ij = exp(-(d_ij / sigma_i)^2), made symmetric, with
    sigma_i the sum of the nine smallest distances of row i (its own 0 included) over 8. As in the benchmark, of the
    nine largest entries of a row, in the order that a partial sort leaves them in, the last is dropped, which may be
    any of them. Graphs of nine nodes or fewer are complete.

    The partial sort is the one that np.argpartition was when the benchmark was made, written out below: today its
    order depends on the processor, and on recent ones the nine are sorted, so that the last is always the nearest
    neighbour. The edges that the benchmark's repository prints (visualization/superpixels_visualization_mnist.ipynb)
    are not sorted.
    """
    distance = np.sqrt(((position_N2[:, None] - position_N2[None]) ** 2).sum(-1))
    size = len(distance)
    num_kept = min(NUM_NEIGHBOURS + 1, size)
    sigma = np.sort(distance, axis=1)[:, :num_kept].sum(1, keepdims=True) / NUM_NEIGHBOURS + 1e-8
    weight = np.exp(-((distance / sigma) ** 2))
    weight = 0.5 * (weight + weight.T)
    np.fill_diagonal(weight, 0.0)
    if size <= NUM_NEIGHBOURS + 1:
        sender, receiver = np.nonzero(~np.eye(size, dtype=bool))
    else:
        first = size - num_kept
        receiver = argpartition_rows(weight, first - 1)[:, first:-1].ravel()
        sender = np.repeat(np.arange(size), NUM_NEIGHBOURS)
    return np.stack([sender, receiver]), weight[sender, receiver]


def superpixel_graphs(sums: SuperpixelSums, *, side: int, name: str, split: str) -> GraphDataset:
    """Return a split: x is mean colour / 255 and (row, column) / side, the edge feature A_ij, all rounded to float16.

    As in the benchmark's files, except that nodes are in the order of the sums; there they are shuffled.
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
    """Return, for each row, indices of which those up to `kth` hold smaller or equal values: [N, M] int64.

    Hoare's selection with the median of three as pivot, step by step as np.argpartition takes it on processors
    without vector instructions for it, so that the order on both sides of kth is the same too.
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
    for place in range(kth + 1):
        smallest = place
        for k in range(place + 1, len(order)):
            if value[order[k]] < value[order[smallest]]:
                smallest = k
        order[place], order[smallest] = order[smallest], order[place]


@kernel
def _select(value: np.ndarray, order: np.ndarray, kth: int) -> None:
    low, high = 0, len(order) - 1
    while low + 1 < high:
        middle = low + (high - low) // 2
        # The median of three goes to `low`, the smallest to `low + 1`, the largest to `high`: neither scan runs out.
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
