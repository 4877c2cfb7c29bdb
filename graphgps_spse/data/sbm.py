"""Stochastic block model graphs of the PATTERN and CLUSTER benchmarks, from the published generator's parameters."""

from typing import NamedTuple

import numpy as np

MIN_SIZE, MAX_SIZE = 5, 34  # nodes of a community or a pattern, both ends included


class BlockGraph(NamedTuple):
    """One node-classification graph."""

    edge_index_2E: np.ndarray
    """[2, E] int64, every edge in both directions, sorted by sender."""
    node_type_N: np.ndarray
    """[N] int64, the input feature."""
    label_N: np.ndarray
    """[N] int64."""


class Pattern(NamedTuple):
    """A random graph with fixed features that is hidden in PATTERN graphs."""

    adjacency_NN: np.ndarray
    """[N, N] bool, symmetric."""
    node_type_N: np.ndarray
    """[N] int64 in 0..2."""


def generate_pattern(rng: np.random.Generator) -> Pattern:
    """Return one pattern to hide: an Erdos-Renyi graph, p = 0.5, of 5 to 34 nodes."""
    size = int(rng.integers(MIN_SIZE, MAX_SIZE + 1))
    return Pattern(_symmetric(rng, np.full((size, size), 0.5)), rng.integers(0, 3, size))


def generate_pattern_graph(rng: np.random.Generator, pattern: Pattern) -> BlockGraph:
    """Return a PATTERN graph: 5 communities (p 0.5, q 0.35) and `pattern`, linked to them with probability 0.5.

    Labels are 1 on the nodes of the pattern.
    """
    community = _communities(rng, 5)
    base = _symmetric(rng, np.where(community[:, None] == community, 0.5, 0.35))
    links = rng.random((len(base), len(pattern.adjacency_NN))) < 0.5
    adjacency = np.block([[base, links], [links.T, pattern.adjacency_NN]])
    node_type = np.concatenate([rng.integers(0, 3, len(base)), pattern.node_type_N])
    label = np.repeat([0, 1], [len(base), len(pattern.node_type_N)])
    return _shuffled(rng, adjacency, node_type, label)


def generate_cluster_graph(rng: np.random.Generator) -> BlockGraph:
    """Return a CLUSTER graph: 6 communities (p 0.55, q 0.25), one node of each showing its community + 1.

    Labels are the communities, 0..5.
    """
    community = _communities(rng, 6)
    adjacency = _symmetric(rng, np.where(community[:, None] == community, 0.55, 0.25))
    node_type = np.zeros_like(community)
    for number in range(6):
        node_type[rng.choice(np.flatnonzero(community == number))] = number + 1
    return _shuffled(rng, adjacency, node_type, community)


def _communities(rng: np.random.Generator, num_communities: int) -> np.ndarray:
    return np.repeat(np.arange(num_communities), rng.integers(MIN_SIZE, MAX_SIZE + 1, num_communities))


def _symmetric(rng: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    upper = np.triu(rng.random(probability.shape) < probability, 1)
    return upper | upper.T


def _shuffled(rng: np.random.Generator, adjacency: np.ndarray, node_type: np.ndarray, label: np.ndarray) -> BlockGraph:
    order = rng.permutation(len(label))
    return BlockGraph(np.stack(np.nonzero(adjacency[order][:, order])), node_type[order], label[order])
