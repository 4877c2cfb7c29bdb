# %% [markdown]
# # Path counts, and what they see
#
# A simple path visits no node twice. The encoding counts the simple paths of each length between every two nodes. This
# notebook counts them on two molecules, draws them, and shows a pair of graphs where random walks fail.

# %%
import matplotlib.pyplot as plt
import numpy as np
from tqdm import tqdm

from graphgps_spse import count_cycles_per_edge, count_simple_paths


def ring(size, first=0):
    """Return the edges of a ring of nodes."""
    return [(first + i, first + (i + 1) % size) for i in range(size)]


def hexagon(center_x):
    """Return the positions of six atoms of a ring that stands on its tip, starting at the upper right."""
    angles = np.pi / 6 + np.arange(6) * np.pi / 3
    return [(center_x + np.cos(angle), np.sin(angle)) for angle in angles]


benzene = ring(6), hexagon(0)
left, right = hexagon(0), hexagon(np.sqrt(3))
naphthalene = (
    [*ring(6), (0, 6), (6, 7), (7, 8), (8, 9), (9, 5)],  # the rings share the bond between atoms 0 and 5
    [*left, right[1], right[0], right[5], right[4]],
)


def draw(axis, molecule, path=(), title=""):
    """Draw a molecule, with the bonds of a path in colour."""
    edges, positions = molecule
    bonds = {frozenset(pair) for pair in zip(path, path[1:])}
    for i, j in edges:
        on_path = frozenset((i, j)) in bonds
        x, y = zip(positions[i], positions[j])
        axis.plot(x, y, color="tab:orange" if on_path else "lightgray", linewidth=5 if on_path else 2, zorder=1)
    for node, (x, y) in enumerate(positions):
        axis.scatter(x, y, s=220, color="tab:orange" if node in (path[:1] + path[-1:]) else "white", edgecolor="gray")
        axis.annotate(str(node), (x, y), ha="center", va="center", fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.margins(0.15)
    axis.set_aspect("equal")
    axis.axis("off")


# %% [markdown]
# ## Two paths around a ring
#
# Between atoms 0 and 1 of benzene there is one path of one bond, and one of five bonds, because the bond lies on one
# ring of six atoms. `counts[k - 1, i, j]` is the number of simple paths of k edges from i to j.

# %%
paths = count_simple_paths(np.array(benzene[0]).T, num_nodes=6, max_length=6)
assert paths.counts[:, 0, 1].tolist() == [1, 0, 0, 0, 1, 0]
figure, axes = plt.subplots(1, 2, figsize=(6, 3))
draw(axes[0], benzene, [0, 1], "length 1")
draw(axes[1], benzene, [0, 5, 4, 3, 2, 1], "length 5")
plt.show()

# %% [markdown]
# ## All paths between two atoms of naphthalene
#
# Four paths lead from atom 2 to atom 7, one for each way around each ring. The pictures come from a search that lists
# paths; the counts come from the engine, which does not list them.


# %%
def list_paths(edges, start, end):
    """Return all simple paths, shortest first."""
    neighbours = {}
    for i, j in edges:
        neighbours.setdefault(i, []).append(j)
        neighbours.setdefault(j, []).append(i)
    found, stack = [], [[start]]
    while stack:
        path = stack.pop()
        if path[-1] == end:
            found.append(path)
            continue
        stack += [[*path, node] for node in neighbours[path[-1]] if node not in path]
    return sorted(found, key=len)


paths = count_simple_paths(np.array(naphthalene[0]).T, num_nodes=10, max_length=9)
listed = list_paths(naphthalene[0], 2, 7)
assert [sum(len(path) == k + 1 for path in listed) for k in range(1, 10)] == paths.counts[:, 2, 7].tolist()
figure, axes = plt.subplots(1, len(listed), figsize=(10, 2))
for axis, path in zip(axes, listed):
    draw(axis, naphthalene, path, f"length {len(path) - 1}")
plt.show()

# %% [markdown]
# ## Paths and walks, length by length
#
# Each heat map has a row and a column for each atom of naphthalene. Above: the probability that a random walk of k
# steps ends at the column's atom. Below: the number of paths of length k. Walks go back and forth, so their
# probabilities become smooth. Paths stay sharp: from length 5 on, they show the rings.

# %%
adjacency = paths.counts[0].astype(float)
walk = adjacency / adjacency.sum(axis=1, keepdims=True)
lengths = (1, 2, 3, 5, 7, 9)
figure, axes = plt.subplots(2, len(lengths), figsize=(10, 3.6))
for column, k in enumerate(lengths):
    axes[0, column].imshow(np.linalg.matrix_power(walk, k), cmap="Blues")
    axes[1, column].imshow(paths.counts[k - 1], cmap="Oranges")
    axes[0, column].set_title(f"length {k}")
for axis, label in zip(axes[:, 0], ("random walks", "paths")):
    axis.set_ylabel(label)
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Where walks fail
#
# Airale et al. (2025, Proposition 1): random walks cannot tell a pair of nodes on an even ring from a pair on a line.
# The walk from node 0 to its neighbour on a ring of six nodes has the same probabilities, at every length, as the walk
# from the middle of a line of seven nodes to the next node. Path counts differ: the ring has a second way round.

# %%
line = [(i, i + 1) for i in range(6)]


def walk_probabilities(edges, size, start, end, length):
    """Return the probability that a walk of 1 to `length` steps from `start` ends at `end`."""
    matrix = np.zeros((size, size))
    for i, j in edges:
        matrix[i, j] = matrix[j, i] = 1
    matrix /= matrix.sum(axis=1, keepdims=True)
    return np.array([np.linalg.matrix_power(matrix, k)[start, end] for k in range(1, length + 1)])


on_ring, on_line = walk_probabilities(ring(6), 6, 0, 1, 20), walk_probabilities(line, 7, 3, 4, 20)
assert np.allclose(on_ring, on_line)
paths_on_ring = count_simple_paths(np.array(ring(6)).T, 6, 6).counts[:, 0, 1]
paths_on_line = count_simple_paths(np.array(line).T, 7, 6).counts[:, 3, 4]
assert paths_on_ring.tolist() == [1, 0, 0, 0, 1, 0] and paths_on_line.tolist() == [1, 0, 0, 0, 0, 0]

figure, (walks_axis, paths_axis) = plt.subplots(1, 2, figsize=(9, 2.8))
walks_axis.plot(range(1, 21), on_ring, "o", label="ring of 6", markersize=8)
walks_axis.plot(range(1, 21), on_line, ".", label="line of 7")
walks_axis.set(xlabel="steps", title="random walks: equal")
paths_axis.bar(np.arange(1, 7) - 0.2, paths_on_ring, 0.4, label="ring of 6")
paths_axis.bar(np.arange(1, 7) + 0.2, paths_on_line, 0.4, label="line of 7")
paths_axis.set(xlabel="length", title="paths: different")
walks_axis.legend()
paths_axis.legend()
plt.show()

# %% [markdown]
# ## Cycles through an edge
#
# For two neighbours, the paths of length k are the cycles of length k + 1 through their edge (Proposition 3). The bond
# that the two rings of naphthalene share lies on two rings of six atoms, the other bonds on one; every bond except the
# shared one also lies on the ring of ten around both.

# %%
cycles = count_cycles_per_edge(np.array(naphthalene[0]).T, num_nodes=10, max_length=10)
for (i, j), counts in zip(naphthalene[0], cycles):
    print(f"bond {i}-{j}: ", {length: int(number) for length, number in enumerate(counts) if number})

# %% [markdown]
# ## Cost
#
# Exact counts of molecules take microseconds. On dense graphs, the number of paths grows exponentially with the length.
# There, `method="auto"` counts exactly as far as a budget allows and estimates the rest without bias, with a standard
# error. `status` says which lengths are exact.

# %%
rng = np.random.default_rng(0)
results = {}
for degree in tqdm((4, 8, 16), desc="random graphs with 60 nodes"):
    edges = np.argwhere(np.triu(rng.random((60, 60)) < degree / 60, 1)).T
    results[degree] = count_simple_paths(edges, 60, max_length=12, budget=50_000_000, seed=0)
for degree, result in results.items():
    exact = sum(status.name == "EXACT" for status in result.status)
    print(
        f"mean degree {degree}: exact up to length {exact}, {result.counts[-1].mean():.3g} paths of length 12 per pair"
    )
