"""Graphs that take a while: their blocks one by one, each with the method that is predicted to take the least work."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from graphgps_spse.counting.blocks import count_blocks, find_blocks, search_block, step_work
from graphgps_spse.counting.graph import SimpleGraphs
from graphgps_spse.counting.parallel import Spread, one_after_another
from graphgps_spse.counting.predict import predict_paths
from graphgps_spse.counting.subsets import MAX_VERTICES, count_subsets, predict_subsets
from graphgps_spse.counting.tails import block_arrays, predict_tails, product_work, tail_counts, walk_prefixes

_TASK_WORK = 1 << 21  # work that is worth a call of its own
_NO_CAP = np.iinfo(np.int64).max


@dataclass(frozen=True)
class HardBlock:
    """A biconnected block of more than two vertices, and the work that each method would take."""

    nodes: np.ndarray
    """[m] int64."""
    ptr: np.ndarray
    """[m + 1] int64: the block's own arcs, as CSR."""
    col: np.ndarray
    work: dict[str, np.ndarray]
    """[K] float64, up to each length, by method: depth-first search, the same with closed forms at the end, subsets."""

    @classmethod
    def of(cls, nodes: np.ndarray, ptr: np.ndarray, col: np.ndarray, max_length: int) -> Self:
        """Cut the block on `nodes` out of a graph (CSR) and predict its paths of up to `max_length` edges."""
        place = np.full(len(ptr) - 1, -1)
        place[nodes] = np.arange(len(nodes))
        degree = ptr[nodes + 1] - ptr[nodes]
        arcs = np.repeat(ptr[nodes + 1] - np.cumsum(degree), degree) + np.arange(degree.sum())
        row, target = np.repeat(np.arange(len(nodes)), degree), place[col[arcs]]
        own_ptr = np.concatenate([[0], np.cumsum(np.bincount(row[target >= 0], minlength=len(nodes)))])
        own_col = target[target >= 0]
        paths = predict_paths(own_ptr, own_col, max_length)
        subsets = predict_subsets(len(nodes)) if len(nodes) <= MAX_VERTICES else np.inf
        work = {
            "search": 2.0 * np.cumsum(paths[:-1]) * step_work(len(ptr) - 1, ptr),  # there and back
            "tails": predict_tails(len(nodes), paths),
            "subsets": np.full(max_length, subsets),
        }
        return cls(nodes, own_ptr, own_col, work)

    @property
    def least_work_K(self) -> np.ndarray:
        """[K] float64: work of the cheapest method up to each length."""
        return np.min(list(self.work.values()), axis=0)

    def method(self, length: int) -> str:
        """Return the cheapest method for paths of up to `length` edges."""
        return min(self.work, key=lambda name: self.work[name][length - 1])

    def adjacency(self) -> np.ndarray:
        """Return [m, m] float64."""
        size = len(self.nodes)
        matrix = np.zeros((size, size))
        matrix[np.repeat(np.arange(size), np.diff(self.ptr)), self.col] = 1.0
        return matrix


@dataclass(frozen=True)
class HardGraph:
    """A graph whose blocks are looked at one by one."""

    ptr: np.ndarray
    """[n + 1] int64: the arcs, as CSR."""
    col: np.ndarray
    symmetric: bool
    block_ptr: np.ndarray
    """[B + 1] int64, as `find_blocks` found them."""
    block_nodes: np.ndarray
    blocks: dict[int, HardBlock]
    """Those of more than two vertices, by number."""
    predicted_K: np.ndarray
    """[K] float64: about how much work counting up to each length takes."""

    @classmethod
    def of(cls, graphs: SimpleGraphs, graph: int, max_length: int) -> Self:
        """Find and measure the blocks of a graph."""
        (ptr, col), (both_ptr, both_col) = graphs.arcs_of(graph), graphs.links_of(graph)
        size = len(ptr) - 1
        block_ptr, block_nodes = np.zeros(size + 1, np.int64), np.empty(2 * size, np.int64)
        scratch = np.empty((5, size + 1), np.int64)
        num_blocks = find_blocks(size, both_ptr, both_col, scratch, block_ptr, block_nodes)
        block_ptr = block_ptr[: num_blocks + 1]
        blocks = {
            b: HardBlock.of(block_nodes[block_ptr[b] : block_ptr[b + 1]], ptr, col, max_length)
            for b in np.flatnonzero(np.diff(block_ptr) > 2).tolist()
        }
        predicted = 0.5 * size**2 * np.arange(1.0, max_length + 1)  # the joins, about
        for block in blocks.values():
            predicted = predicted + block.least_work_K
        return cls(ptr, col, not graphs.directed, block_ptr, block_nodes, blocks, predicted)

    def count(
        self, max_work: int, limit: np.ndarray, spent: int, spread: Spread, counts: np.ndarray
    ) -> tuple[int, int]:
        """Count into `counts` [n * n, K]; return the length reached and the work.

        A length that takes more than `max_work` though less was predicted is given up for the next shorter one, then
        for those 2, 4, .. below. Returns length 0 if the work, with what is `spent` already, exceeds limit[0].
        """
        length, wasted, gap = max(1, int(np.count_nonzero(self.predicted_K <= max_work))), 0, 1
        while True:
            allowed = int(limit[0]) - spent - wasted
            if self.predicted_K[length - 1] > allowed:
                return 0, wasted
            counts[:] = 0.0
            cap = max_work if length > 1 else _NO_CAP
            work = self._count_to(length, min(cap, allowed), limit, spread, counts)
            if work > int(limit[0]) - spent - wasted:
                return 0, wasted
            if work <= cap:
                return length, wasted + work
            wasted += max_work
            length, gap = max(1, length - gap), 2 * gap

    def _count_to(self, length: int, cap: int, limit: np.ndarray, spread: Spread, counts: np.ndarray) -> int:
        """Count up to one length; return the work, more than `cap` if it was not finished."""
        size, num_blocks = len(self.ptr) - 1, len(self.block_ptr) - 1
        done, used = np.zeros(num_blocks, np.bool_), 0
        for b, block in self.blocks.items():
            if block.least_work_K[length - 1] < _TASK_WORK and block.method(length) == "search":
                continue  # left to the loop over all blocks
            used += self._count_block(block, length, cap - used, limit, spread, counts)
            if used > cap or limit[0] < 0:
                return used
            done[b] = True
        meters, scratch, free = np.zeros(1, np.int64), np.empty((5, size + 1), np.int64), np.zeros(size, np.int64)
        count_blocks(
            size,
            num_blocks,
            self.block_ptr,
            self.block_nodes,
            done,
            self.ptr,
            self.col,
            length,
            self.symmetric,
            scratch,
            np.zeros((2, size * size), np.int16),
            free,
            meters,
            cap - used,
            limit,
            counts,
        )
        return used + int(meters[0]) + int(0.5 * size**2 * length)

    def _count_block(
        self, block: HardBlock, length: int, cap: int, limit: np.ndarray, spread: Spread, counts: np.ndarray
    ) -> int:
        """Count the paths inside one block, its vertices divided into tasks; return the work."""
        method, nodes, size = block.method(length), block.nodes, len(self.ptr) - 1
        num_tasks = int(min(len(nodes), 1 + block.work[method][length - 1] / _TASK_WORK))
        bounds, meters = np.linspace(0, len(nodes), num_tasks + 1).astype(np.int64), np.zeros(num_tasks, np.int64)

        def search(task: int) -> None:
            memory = np.empty((5, size + 1), np.int64), np.zeros(size, np.int64)
            span = bounds[task], bounds[task + 1]
            price = step_work(size, self.ptr)
            search_block(
                size, nodes, *span, self.ptr, self.col, length, price, *memory, meters, task, cap, limit, counts
            )

        if method == "search":
            spread(search, num_tasks)
            return int(meters.sum())
        adjacency = block.adjacency()
        if method == "subsets":
            found = np.zeros((min(length, len(nodes) - 1), *adjacency.shape))

            def count(task: int) -> None:
                count_subsets(adjacency, bounds[task], bounds[task + 1], meters, task, cap, limit, found)

            spread(count, num_tasks)
        else:
            arrays = block_arrays(adjacency)
            lengths, sums = np.zeros((max(1, length - 3), *adjacency.shape)), np.zeros((6, *adjacency.shape))

            def walk(task: int) -> None:
                span = bounds[task], bounds[task + 1]
                walk_prefixes(
                    block.ptr, block.col, arrays, self.symmetric, *span, meters, task, cap, limit, lengths, sums
                )

            spread(walk, num_tasks)
            meters[0] += product_work(len(nodes))
            found = tail_counts(arrays, lengths, sums)[:length]
        counts.reshape(size, size, -1)[nodes[:, None], nodes[None, :], : len(found)] = found.transpose(1, 2, 0)
        return int(meters.sum())


def compile_methods(graphs: SimpleGraphs) -> None:
    """Count the first graph, which should be small, by each method in turn, so that their kernels are compiled."""
    graph, limit = HardGraph.of(graphs, 0, 2), np.array([_NO_CAP])
    counts = np.zeros((graphs.num_pairs(0, 1), 2))
    for method in ("search", "tails", "subsets"):
        only = {b: replace(block, work={method: np.full(2, 1.0 * _TASK_WORK)}) for b, block in graph.blocks.items()}
        replace(graph, blocks=only).count(_NO_CAP, limit, 0, one_after_another, counts)
