"""Lower bounds of path counts from many acyclic graphs: the paper's Algorithms 1 and 3.

Every ordering of the nodes (orderings.py) keeps the arcs that lead forward in it. In what is left, walks are simple
paths, and their number of each length follows by adding up the numbers of the next nodes. The bound is the largest
number over all orderings, pair by pair and length by length. In undirected graphs paths are counted in the direction
of the ordering and hold for both.

Every component is treated as a graph of its own: it gets max(min_roots, round(R * nodes)) roots, at most all of its
nodes. Random numbers depend on the seed, the component's arcs, the repeat, the number of the root and the depth: more
roots, depths, tries or repeats add orderings to the same ones, so that no count gets lower.
"""

from collections.abc import Iterator
from threading import Lock
from typing import NamedTuple

import numpy as np

from graphgps_spse.counting.graph import CSR, SimpleGraphs
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.counting.orderings import choose_roots, fill_keys, make_orderings
from graphgps_spse.counting.parallel import Spread
from graphgps_spse.counting.records import ChunkCounts, Status
from graphgps_spse.errors import ConfigError
from graphgps_spse.jit import kernel

_BATCH_NODES = 1 << 14  # entries of the orderings that are made, then counted, at a time
_MAX_PARTS = 8  # of one component, each with counts of its own
_MAX_ORDERS = 1 << 29  # entries of the orderings of one root: 4 GiB
_MAX_SEEN = 1 << 16  # acyclic graphs that a part remembers, not to count them again
_ROW_VALUES = 512  # numbers in a row of count_dense: long enough for the loop, short enough for the cache
_CHECK_WORK = 1 << 20  # work between two looks at the limit
_DENSE_DEGREE = 4.0  # mean number of neighbours from which whole rows are added, without looking for zeros


class _Component(NamedTuple):
    """A weakly connected component of at least two nodes, as a graph of its own."""

    nodes: np.ndarray
    """[M] int64: its nodes, ascending, numbered within the graph; everything below numbers them from 0."""
    arcs: CSR
    links: CSR
    reverse: CSR
    """The arcs turned round."""
    directed: bool


def count_dag(
    graphs: SimpleGraphs,
    first: int,
    last: int,
    max_length: int,
    options: CountOptions,
    limit: np.ndarray,
    spread: Spread,
    counts_PK: np.ndarray,
) -> ChunkCounts | None:
    """Bound the path counts of graphs first..last-1 from below; None if that takes more than limit[0] work ([1] int64).

    Length 1 is exact, lengths that no component is large enough for are, and all are where every component is a tree
    with enough roots. Counts are float64: beyond 2^53 they are rounded, with a relative error of about 1e-16 for each
    addition. Raises ConfigError where the orderings of one root cannot be kept in memory.
    """
    status_GK = np.full((last - first, max_length), Status.EXACT.code, np.int8)
    work = 0
    for g in range(first, last):
        start = graphs.num_pairs(first, g)
        counts = counts_PK[start : start + graphs.num_pairs(g, g + 1)]
        for component in _components(graphs, g):
            size = len(component.nodes)
            num_roots = min(size, max(options.min_roots, round(options.R * size), 1))
            if not _is_tree_from_all(component, num_roots):
                status_GK[g - first, 1 : size - 1] = Status.LOWER_BOUND.code
            done = _count_component(component, num_roots, options, work, limit, spread, counts)
            if done < 0:
                return None
            work += done
    return ChunkCounts(counts_PK, None, status_GK, work)


def _components(graphs: SimpleGraphs, g: int) -> Iterator[_Component]:
    begin, end = graphs.node_ptr[g], graphs.node_ptr[g + 1]
    arcs, links = ((ptr[begin : end + 1], col) for ptr, col in (graphs.arcs, graphs.links))
    labels = np.empty(end - begin, np.int64)
    num_components = _label_components(*links, labels)
    nodes = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[nodes], np.arange(num_components + 1))
    local = np.empty_like(nodes)
    for c in np.flatnonzero(np.diff(ends) > 1):
        members = nodes[ends[c] : ends[c + 1]]
        local[members] = np.arange(len(members))
        own_links = _induce(*links, members, local)
        own_arcs = _induce(*arcs, members, local) if graphs.directed else own_links
        reverse = _turn_round(*own_arcs) if graphs.directed else own_links
        yield _Component(members, own_arcs, own_links, reverse, graphs.directed)


def _is_tree_from_all(component: _Component, num_roots: int) -> bool:
    """Say whether all counts are exact: in a tree, every ordering from a root holds all paths that start there."""
    size = len(component.nodes)
    return len(component.links[1]) == 2 * (size - 1) and num_roots >= size - (not component.directed)


def _count_component(
    component: _Component,
    num_roots: int,
    options: CountOptions,
    work_before: int,
    limit: np.ndarray,
    spread: Spread,
    counts: np.ndarray,
) -> int:
    """Write the counts of the pairs inside one component to `counts` [N * N, K]; return the work, or -1 if stopped."""
    size, num_arcs = len(component.nodes), len(component.arcs[1])
    max_depth = min(options.D_dfs + 1, 1 + int((np.diff(component.links[0]) > 2).sum()))
    per_root = (max_depth + 1) * options.N  # orderings, at most
    if per_root * size > _MAX_ORDERS:
        raise ConfigError(f"N: {options.N} tries for {size} nodes do not fit into memory; lower it and raise repeats")
    cost = options.repeats * num_roots * (len(component.links[1]) + 10 * size)  # of choosing the roots
    if work_before + cost > limit[0]:
        return -1
    keys, roots = np.empty(options.repeats, np.uint64), np.empty((options.repeats, num_roots), np.int64)
    fill_keys(*component.arcs, options.seed, keys)
    for repeat in range(options.repeats):
        choose_roots(*component.links, keys[repeat : repeat + 1], limit, roots[repeat])
    step = max(1, _BATCH_NODES // (per_root * size))
    batches = [(repeat, root) for repeat in range(options.repeats) for root in range(0, num_roots, step)]
    num_parts, cost_of_try = min(len(batches), _MAX_PARTS), 6 * num_arcs + 25 * size
    spent = np.zeros(num_parts + 1, np.int64)
    spent[num_parts] = work_before + cost
    best = np.zeros((size, size, min(counts.shape[1], size - 1)))
    lock, count = Lock(), count_dense if num_arcs >= _DENSE_DEGREE * size else count_sparse

    def work_on(part: int) -> None:
        own = best if num_parts == 1 else np.zeros_like(best)
        seen = np.zeros(1 << min(_MAX_SEEN, 2 * options.repeats * num_roots * per_root).bit_length(), np.uint64)
        for repeat, first_root in batches[part::num_parts]:
            chosen, key = roots[repeat, first_root : first_root + step], keys[repeat : repeat + 1]
            least = len(chosen) * (max_depth + 1) * cost_of_try  # one try for each root and depth
            if spent.sum() + least > limit[0]:
                spent[part] += least
                return
            orders = np.empty((len(chosen) * per_root, size), np.int64)
            num_orders, num_tries = make_orderings(
                *component.arcs, chosen, first_root, max_depth, options.N, key, seen, limit, orders
            )
            spent[part] += num_tries * cost_of_try
            orders = orders[:num_orders]
            if not count(component.arcs[0], *component.reverse, component.directed, orders, part, spent, limit, own):
                return
        if own is not best:
            with lock:
                np.maximum(best, own, out=best)

    spread(work_on, num_parts)
    if spent.sum() > limit[0]:
        return -1
    _write_counts(best, component.nodes, component.directed, *component.arcs, counts)
    return int(spent.sum()) - work_before


@kernel
def count_dense(row_ptr, into_ptr, into_col, directed, orders, part, spent, limit, best):
    """Raise best[u, v, k - 1] to the paths of k edges from u to v along each of the orderings, [N, N, K].

    Undirected, the count of u and v stands in best[max(u, v), min(u, v)] alone. `row_ptr` is that of the arcs,
    `into_ptr, into_col` are the arcs turned round. Adds to spent[part]; False if all of `spent` exceeds limit[0].

    Nodes are ranked from the end of the ordering, so that arcs lead to lower ranks. With S(r, t) = sum_k S_k[r, t] x^k
    and S(t, t) = 1, S(r, t) is x times the sum of S(s, t) over the next ranks s of r. The polynomials of one r and
    some consecutive targets t lie end to end, K coefficients each from x^0 on, and times x is a shift by one: the
    sum is over long rows. The last coefficient comes to lie in the constant of the next t, which is cleared after use.
    """
    num_nodes, max_length = best.shape[0], best.shape[2]
    rank, longest = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    first, last, next_ranks = row_ptr[:-1].copy(), row_ptr[:-1].copy(), np.empty_like(into_col)
    num_targets = max(1, _ROW_VALUES // max_length)
    width = (num_targets * max_length + 15) // 16 * 16 + 16
    paths, all_best, work = np.zeros(num_nodes * width), best.reshape(-1), 0
    for o in range(len(orders)):
        nodes = orders[o, ::-1].copy()
        _rank_arcs(row_ptr, into_ptr, into_col, nodes, rank, first, last, next_ranks, longest)
        work += 6 * len(into_col)
        for low in range(0, num_nodes, num_targets):
            for r in range(low, num_nodes):
                row, num = r * width, min(r - low, num_targets)
                work += _add_rows(paths, width, next_ranks[first[r] : last[r]], low, max_length, row)
                _raise_pairs(paths, row, nodes[low : low + num], nodes[r], directed, max_length, num_nodes, all_best)
                for t in range(num + 1):
                    paths[row + t * max_length] = 0.0
                if num < num_targets:
                    paths[row + num * max_length] = 1.0
                work += num * max_length // 2
                if work > _CHECK_WORK:
                    spent[part] += work
                    work = 0
                    if spent.sum() > limit[0]:
                        return False
    spent[part] += work
    return spent.sum() <= limit[0]


@kernel
def _add_rows(paths, width, ranks, low, max_length, row):
    """Set the row that begins at `row` to the sum of those of `ranks`, ascending, shifted by one; return the work.

    Offsets are unsigned: the compiler then knows that no index counts from the end, and adds many numbers at a time.
    Lengths are rounded up to 16 of them, into what is zero.
    """
    wide, out = np.uint64(width), np.uint64(row)
    for i in range(wide):
        paths[out + i] = 0.0
    out += np.uint64(1)
    a, work = 0, width // 8
    while a < len(ranks) and ranks[a] < low:
        a += 1
    while (len(ranks) - a) % 4:
        x = np.uint64(ranks[a]) * wide
        length = min(width - 16, ((ranks[a] - low + 1) * max_length + 15) // 16 * 16)
        for i in range(np.uint64(length)):
            paths[out + i] += paths[x + i]
        work += length // 4
        a += 1
    while a < len(ranks):
        w, x = np.uint64(ranks[a]) * wide, np.uint64(ranks[a + 1]) * wide
        y, z = np.uint64(ranks[a + 2]) * wide, np.uint64(ranks[a + 3]) * wide
        length = min(width - 16, ((ranks[a + 3] - low + 1) * max_length + 15) // 16 * 16)
        for i in range(np.uint64(length)):
            paths[out + i] += (paths[w + i] + paths[x + i]) + (paths[y + i] + paths[z + i])
        work += length // 2
        a += 4
    return work


@kernel
def _raise_pairs(paths, row, targets, u, directed, max_length, num_nodes, best):
    """Raise the counts from u to each of the targets, `best` flat, to those in a row of `paths`."""
    for t in range(len(targets)):
        v = targets[t]
        big, small = (u, v) if directed else (max(u, v), min(u, v))
        pair, here = np.uint64((big * num_nodes + small) * max_length), np.uint64(row + t * max_length + 1)
        for k in range(np.uint64(max_length)):
            best[pair + k] = max(best[pair + k], paths[here + k])


@kernel
def count_sparse(row_ptr, into_ptr, into_col, directed, orders, part, spent, limit, best):
    """Do what `count_dense` does, following only the paths that there are: for graphs with few arcs."""
    num_nodes, max_length, work = best.shape[0], best.shape[2], 0
    rank, longest = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    first, last, next_ranks = row_ptr[:-1].copy(), row_ptr[:-1].copy(), np.empty_like(into_col)
    now, then = np.zeros(num_nodes), np.zeros(num_nodes)
    ends, new_ends = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    for o in range(len(orders)):
        nodes = orders[o, ::-1].copy()
        _rank_arcs(row_ptr, into_ptr, into_col, nodes, rank, first, last, next_ranks, longest)
        work += 20 * num_nodes + 6 * len(into_col)
        for r in range(num_nodes):
            u = nodes[r]
            ends[0], now[r], num_ends = r, 1.0, 1
            for k in range(1, min(longest[r], max_length) + 1):
                num_new = 0
                for i in range(num_ends):
                    end = ends[i]
                    value, now[end] = now[end], 0.0
                    for a in range(first[end], last[end]):
                        new = next_ranks[a]
                        if then[new] == 0.0:
                            new_ends[num_new] = new
                            num_new += 1
                        then[new] += value
                    work += 4 * (last[end] - first[end]) + 4
                for i in range(num_new):
                    v = nodes[new_ends[i]]
                    big, small = (u, v) if directed else (max(u, v), min(u, v))
                    best[big, small, k - 1] = max(best[big, small, k - 1], then[new_ends[i]])
                now, then, ends, new_ends, num_ends = then, now, new_ends, ends, num_new
                work += 6 * num_new
            for i in range(num_ends):
                now[ends[i]] = 0.0
            if work > _CHECK_WORK:
                spent[part] += work
                work = 0
                if spent.sum() > limit[0]:
                    return False
    spent[part] += work
    return spent.sum() <= limit[0]


@kernel
def _rank_arcs(row_ptr, into_ptr, into_col, nodes, rank, first, last, next_ranks, longest):
    """List where forward arcs lead, by rank; nodes[r] has rank r, and arcs lead to lower ranks.

    Those from rank r are next_ranks[first[r]:last[r]], ascending; its longest path has longest[r] edges.
    """
    for r in range(len(nodes)):
        rank[nodes[r]] = r
        first[r] = last[r] = row_ptr[nodes[r]]
        longest[r] = 0
    for r in range(len(nodes)):
        v = nodes[r]
        for e in range(into_ptr[v], into_ptr[v + 1]):
            before = rank[into_col[e]]
            is_forward = np.int64(before > r)  # a number: a branch would be guessed wrong half of the time
            next_ranks[last[before]] = r  # room is left: if it is not forward, the list lacks this arc in the end
            last[before] += is_forward
            longest[before] = max(longest[before], (longest[r] + 1) * is_forward)


@kernel
def _write_counts(best, nodes, directed, row_ptr, col, counts):
    """Write the counts of a component to its pairs of the graph, rows u * N + v of `counts` [N * N, K]."""
    num_nodes = round(np.sqrt(len(counts)))
    for a in range(len(nodes)):
        for b in range(len(nodes)):
            big, small = (a, b) if directed else (max(a, b), min(a, b))
            counts[nodes[a] * num_nodes + nodes[b], : best.shape[2]] = best[big, small]
        for e in range(row_ptr[a], row_ptr[a + 1]):
            counts[nodes[a] * num_nodes + nodes[col[e]], 0] = 1.0


@kernel
def _label_components(link_ptr, link_col, labels):
    """Number the connected components of one graph, from 0 in the order of their first nodes; return how many."""
    num_nodes = len(labels)
    labels[:] = -1
    queue = np.empty(num_nodes, np.int64)
    num_components = 0
    for root in range(num_nodes):
        if labels[root] >= 0:
            continue
        queue[0], labels[root] = root, num_components
        head, filled = 0, 1
        while head < filled:
            node = queue[head]
            head += 1
            for e in range(link_ptr[node], link_ptr[node + 1]):
                if labels[link_col[e]] < 0:
                    labels[link_col[e]] = num_components
                    queue[filled] = link_col[e]
                    filled += 1
        num_components += 1
    return num_components


@kernel
def _induce(row_ptr, col, members, local):
    """Return the rows of some nodes that have no arcs to others, as a graph of its own."""
    own_ptr = np.zeros(len(members) + 1, np.int64)
    for i in range(len(members)):
        own_ptr[i + 1] = own_ptr[i] + row_ptr[members[i] + 1] - row_ptr[members[i]]
    own_col = np.empty(own_ptr[-1], np.int64)
    for i in range(len(members)):
        for e in range(row_ptr[members[i] + 1] - row_ptr[members[i]]):
            own_col[own_ptr[i] + e] = local[col[row_ptr[members[i]] + e]]
    return own_ptr, own_col


@kernel
def _turn_round(row_ptr, col):
    """Return the arcs turned round."""
    into_ptr = np.zeros(len(row_ptr) + 1, np.int64)
    for v in col:
        into_ptr[v + 2] += 1
    into_ptr = np.cumsum(into_ptr)
    into_col = np.empty_like(col)
    for v in range(len(row_ptr) - 1):
        for e in range(row_ptr[v], row_ptr[v + 1]):
            into_col[into_ptr[col[e] + 1]] = v
            into_ptr[col[e] + 1] += 1
    return into_ptr[:-1], into_col
