"""The paper's propositions and figures as programs: what walks cannot tell apart, and what paths count."""

from itertools import pairwise

import numpy as np
import pytest
from naive import walk_probabilities

from graphgps_spse.counting import count_simple_paths
from graphgps_spse.counting.edge_cycles import count_cycles_per_edge


def ring(size):
    return [(i, (i + 1) % size) for i in range(size)]


def line(size):
    return list(pairwise(range(size)))


def both_ways(edges):
    return [*edges, *((j, i) for i, j in edges)]


def walks(edges, size, num_powers):
    return walk_probabilities(both_ways(edges), size, num_powers)[1:]


def paths(edges, size, max_length):
    return count_simple_paths(np.array(edges).T, size, max_length).counts


@pytest.mark.parametrize("half", [2, 3, 4, 7])
def test_proposition_1_walks_confuse_even_rings_with_lines(half):
    """C_2n and P_2n+1: node i of the ring looks like the middle of the line, its opposite like an end."""
    on_ring, on_line = walks(ring(2 * half), 2 * half, 30), walks(line(2 * half + 1), 2 * half + 1, 30)
    paths_on_ring = paths(ring(2 * half), 2 * half, 2 * half)
    paths_on_line = paths(line(2 * half + 1), 2 * half + 1, 2 * half)
    middle = half
    for i in range(2 * half):
        for j in range(2 * half):
            distance = min((i - j) % (2 * half), (j - i) % (2 * half))
            pair = (middle, middle + distance) if distance < half else (2 * half, middle)
            np.testing.assert_allclose(on_ring[:, i, j], on_line[:, *pair], atol=1e-14)
            if i != j:  # two ways round the ring, one along the line: no pair of the line has the counts of (i, j)
                assert paths_on_ring[:, i, j].sum() == 2
    assert paths_on_line.sum(0).max() == 1


@pytest.mark.parametrize("seed", range(6))
def test_proposition_2_walks_confuse_a_graph_with_its_mirror_image(seed):
    """A graph and its mirror image, joined at node j: walks from i to j land as if the image were not there."""
    rng = np.random.default_rng(seed)
    size, j = 7, 1
    edges = [(k, int(rng.integers(0, k))) for k in range(1, size)] + rng.integers(0, size, (4, 2)).tolist()
    edges = sorted({(min(e), max(e)) for e in edges if e[0] != e[1]})
    mirror = [node if node == j else size + node - (node > j) for node in range(size)]
    doubled = edges + [(mirror[a], mirror[b]) for a, b in edges]
    alone, together = walks(edges, size, 25), walks(doubled, 2 * size - 1, 25)
    np.testing.assert_allclose(together[:, :size, j], alone[:, :, j], atol=1e-14)
    # Paths between i and j are those of the graph itself as well: the proposition holds of simple paths too.
    np.testing.assert_array_equal(paths(doubled, 2 * size - 1, 6)[:, :size, j], paths(edges, size, 6)[:, :, j])
    assert len(doubled) == 2 * len(edges)


def cycles_through_edges(edges, size, max_length):
    """[E, max_length + 1] simple cycles by length through each edge, by walking all of them."""
    neighbours = [{b for a, b in both_ways(edges) if a == node} for node in range(size)]
    counts = np.zeros((len(edges), max_length + 1))

    def extend(row, path, goal):
        if path[-1] == goal:
            counts[row, len(path)] += len(path) > 2
            return
        for node in neighbours[path[-1]] - set(path):
            if len(path) < max_length:
                extend(row, [*path, node], goal)

    for row, (i, j) in enumerate(edges):
        extend(row, [i], j)
    return counts


@pytest.mark.parametrize("seed", range(6))
def test_proposition_3_adjacent_pairs_count_cycles(seed):
    """S_k[i, j] of an edge is the number of cycles of k + 1 edges through it."""
    rng = np.random.default_rng(seed)
    edges = [tuple(e) for e in np.argwhere(np.triu(rng.random((8, 8)) < 0.4, 1)).tolist()]
    expected = cycles_through_edges(edges, 8, 8)
    found = count_cycles_per_edge(np.array(edges).T, 8, 8)
    np.testing.assert_array_equal(found, expected)
    counts = paths(edges, 8, 7)
    for row, (i, j) in enumerate(edges):
        np.testing.assert_array_equal(counts[1:, i, j], expected[row, 3:])
    assert expected.sum() > 0


def test_figure_of_equal_walks():
    """Edges (0, 1) of a ring of four and of a line of five, of a ring of six and of a line of seven."""
    for half in (2, 3):
        on_ring = walks(ring(2 * half), 2 * half, 40)[:, 0, 1]
        on_line = walks(line(2 * half + 1), 2 * half + 1, 40)[:, half, half + 1]
        np.testing.assert_allclose(on_ring, on_line, atol=1e-14)
        assert (
            paths(ring(2 * half), 2 * half, 6)[:, 0, 1].tolist()
            != paths(line(2 * half + 1), 2 * half + 1, 6)[:, half, half + 1].tolist()
        )


def test_figure_of_cycles_on_bonds():
    """A bond of benzene is known by S_1 = S_5 = 1; the double bond of a carboxyl group by S_1 = 1 alone."""
    benzoic_acid = [*ring(6), (0, 6), (6, 7), (6, 8)]  # the ring, its carbon, =O and -OH
    counts = paths(benzoic_acid, 9, 8)
    for i, j in ring(6):
        assert counts[:, i, j].tolist() == [1, 0, 0, 0, 1, 0, 0, 0]
    assert counts[:, 6, 7].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    naphthalene = [*ring(6), (0, 6), (6, 7), (7, 8), (8, 9), (9, 5)]  # the edge (0, 5) is shared
    counts = paths(naphthalene, 10, 9)
    assert counts[:, 0, 5].tolist() == [1, 0, 0, 0, 2, 0, 0, 0, 0]  # on both six-rings
    assert counts[:, 0, 1].tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]  # on one of them and on the ten-ring around
