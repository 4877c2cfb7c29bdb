"""Costly graphs: each block is counted by the method that is predicted to take the least work."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from graphgps_spse.counting.exact.across_blocks import count_blocks, new_join_scratch
from graphgps_spse.counting.exact.biconnected import Blocks, find_blocks, new_block_scratch, new_blocks
from graphgps_spse.counting.exact.last_four_edges import (
    block_matrices,
    finish_counts,
    new_sums,
    predict_last_four,
    product_work,
    walk_prefixes,
)
from graphgps_spse.counting.exact.search_size import predict_paths
from graphgps_spse.counting.exact.vertex_subsets import MAX_VERTICES, count_subsets, predict_subsets
from graphgps_spse.counting.exact.within_block import new_search_scratch, search_block, work_per_step
from graphgps_spse.counting.graphs import SimpleGraphs
from graphgps_spse.counting.parallel import RunTasks, run_in_turn
from graphgps_spse.counting.work_meter import WorkMeter

_TASK_WORK = 1 << 21  # work that is worth a call of its own
_NO_CAP = np.iinfo(np.int64).max


@dataclass(frozen=True)
class BlockPlan:
    """A block of more than two vertices, and the work that each method would take."""

    nodes: np.ndarray
    """[m] int64: its vertices, as nodes of the graph."""
    graph: SimpleGraphs
    """The block alone; vertex i is nodes[i]."""
    work: dict[str, np.ndarray]
    """[K] float64, up to each length, by method: search, last_four_edges, subsets."""

    @classmethod
    def of(cls, graph: SimpleGraphs, nodes: np.ndarray, max_length: int) -> Self:
        """Cut the block on `nodes` out of one graph and predict its paths of up to `max_length` edges."""
        block = graph.subgraph(nodes)
        paths = predict_paths(block, max_length)
        subsets = predict_subsets(len(nodes)) if len(nodes) <= MAX_VERTICES else np.inf
        price = work_per_step(graph.num_nodes, graph.directed_edges.row_ptr)
        with np.errstate(over="ignore"):  # work beyond float64 is infinite
            work = {
                "search": 2.0 * np.cumsum(paths[:-1]) * price,  # there and back
                "last_four_edges": predict_last_four(len(nodes), paths),
                "subsets": np.full(max_length, subsets),
            }
        return cls(nodes, block, work)

    @property
    def least_work_K(self) -> np.ndarray:
        """[K] float64: work of the cheapest method up to each length."""
        return np.min(list(self.work.values()), axis=0)

    def method(self, length: int) -> str:
        """Return the cheapest method for paths of up to `length` edges."""
        return min(self.work, key=lambda name: self.work[name][length - 1])

    def adjacency(self) -> np.ndarray:
        """Return [m, m] float64."""
        size, (row_ptr, col) = len(self.nodes), self.graph.directed_edges
        matrix = np.zeros((size, size))
        matrix[np.repeat(np.arange(size), np.diff(row_ptr)), col] = 1.0
        return matrix


@dataclass(frozen=True)
class GraphPlan:
    """A graph that is counted block by block."""

    graph: SimpleGraphs
    blocks: Blocks
    plans: dict[int, BlockPlan]
    """Those of blocks of more than two vertices, by the number of the block."""
    predicted_K: np.ndarray
    """[K] float64: about how much work counting up to each length takes."""

    @classmethod
    def of(cls, graph: SimpleGraphs, max_length: int) -> Self:
        """Find the blocks of one graph and predict what they cost."""
        size = graph.num_nodes
        room = new_blocks(size)
        num_blocks = find_blocks(size, *graph.undirected_edges, new_block_scratch(size), room)
        blocks = Blocks(room.ptr[: num_blocks + 1], room.nodes)
        plans = {
            b: BlockPlan.of(graph, blocks.nodes[blocks.ptr[b] : blocks.ptr[b + 1]], max_length)
            for b in np.flatnonzero(np.diff(blocks.ptr) > 2).tolist()
        }
        predicted = _join_work(size) * np.arange(1.0, max_length + 1)
        for plan in plans.values():
            predicted = predicted + plan.least_work_K
        return cls(graph, blocks, plans, predicted)

    def count(
        self, max_work: int, limit: np.ndarray, spent: int, run_tasks: RunTasks, counts: np.ndarray
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
            work = self._count_to(length, min(cap, allowed), limit, run_tasks, counts)
            if work > int(limit[0]) - spent - wasted:
                return 0, wasted
            if work <= cap:
                return length, wasted + work
            wasted += max_work
            length, gap = max(1, length - gap), 2 * gap

    def _count_to(self, length: int, cap: int, limit: np.ndarray, run_tasks: RunTasks, counts: np.ndarray) -> int:
        """Count up to one length; return the work, more than `cap` if it was not finished."""
        size, is_counted, used = self.graph.num_nodes, np.zeros(len(self.blocks.ptr) - 1, np.bool_), 0
        for b, plan in self.plans.items():
            if plan.least_work_K[length - 1] < _TASK_WORK and plan.method(length) == "search":
                continue  # left to count_blocks
            used += self._count_block(plan, length, cap - used, limit, run_tasks, counts)
            if used > cap or limit[0] < 0:
                return used
            is_counted[b] = True
        meter = WorkMeter(np.zeros(1, np.int64), cap - used, limit)
        count_blocks(
            size,
            *self.graph.directed_edges,
            self.blocks,
            is_counted,
            length,
            not self.graph.is_directed,
            new_search_scratch(size),
            new_join_scratch(size),
            *np.zeros((2, size * size), np.int16),
            meter,
            counts,
        )
        return used + int(meter.spent[0]) + int(_join_work(size) * length)

    def _count_block(
        self, plan: BlockPlan, length: int, cap: int, limit: np.ndarray, run_tasks: RunTasks, counts: np.ndarray
    ) -> int:
        """Count the paths inside one block, its vertices divided into tasks; return the work."""
        method, nodes, size = plan.method(length), plan.nodes, self.graph.num_nodes
        num_tasks = int(min(len(nodes), 1 + plan.work[method][length - 1] / _TASK_WORK))
        bounds = np.linspace(0, len(nodes), num_tasks + 1).astype(np.int64)
        meter, edges = WorkMeter(np.zeros(num_tasks, np.int64), cap, limit), self.graph.directed_edges

        def search(task: int) -> None:
            part, scratch = (bounds[task], bounds[task + 1]), new_search_scratch(size)
            search_block(size, *edges, nodes, *part, length, scratch, meter, task, counts)

        if method == "search":
            run_tasks(search, num_tasks)
            return int(meter.spent.sum())
        adjacency = plan.adjacency()
        if method == "subsets":
            found = np.zeros((min(length, len(nodes) - 1), *adjacency.shape))

            def count(task: int) -> None:
                count_subsets(adjacency, bounds[task], bounds[task + 1], meter, task, found)

            run_tasks(count, num_tasks)
        else:
            matrices, sums = block_matrices(adjacency, limit), new_sums(len(nodes))
            prefixes, edges = np.zeros((max(1, length - 3), *adjacency.shape)), plan.graph.directed_edges
            is_symmetric = not self.graph.is_directed

            def walk(task: int) -> None:
                part = bounds[task], bounds[task + 1]
                walk_prefixes(*edges, matrices, is_symmetric, *part, meter, task, prefixes, sums)

            run_tasks(walk, num_tasks)
            meter.spent[0] += product_work(len(nodes))
            found = finish_counts(matrices, prefixes, sums, limit)[:length]
        counts.reshape(size, size, -1)[nodes[:, None], nodes[None, :], : len(found)] = found.transpose(1, 2, 0)
        return int(meter.spent.sum())


def _join_work(num_nodes: int) -> float:
    """Return about the work of joining blocks, for each length."""
    return 0.5 * num_nodes**2


def compile_methods(graphs: SimpleGraphs) -> None:
    """Count the first graph, which should be small, by each method in turn, so that their kernels are compiled."""
    plan, limit = GraphPlan.of(graphs.one(0), 2), np.array([_NO_CAP])
    counts = np.zeros((graphs.num_pairs(0, 1), 2))
    for method in ("search", "last_four_edges", "subsets"):
        only = {b: replace(block, work={method: np.full(2, 1.0 * _TASK_WORK)}) for b, block in plan.plans.items()}
        replace(plan, plans=only).count(_NO_CAP, limit, 0, run_in_turn, counts)
