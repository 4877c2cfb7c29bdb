"""Superpixel graphs of MNIST and CIFAR10, built as the benchmark built them."""

import numpy as np

NUM_NEIGHBOURS = 8


def connect_superpixels(position_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges [2, E] int64, eight from each node, directed, and their weights [E] float64.

    `position_N2` are the centres in units of the image's side. A_ij = exp(-(d_ij / sigma_i)^2), made symmetric, with
    sigma_i the sum of the nine smallest distances of row i (its own 0 included) over 8. As in the benchmark, of the
    nine largest entries of a row, in the order that np.argpartition leaves them in, the last is dropped: mostly the
    nearest neighbour. Graphs of nine nodes or fewer are complete.
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
        receiver = np.argpartition(weight, first - 1, axis=1)[:, first:-1].ravel()
        sender = np.repeat(np.arange(size), NUM_NEIGHBOURS)
    return np.stack([sender, receiver]), weight[sender, receiver]
