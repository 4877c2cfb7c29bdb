"""Orderings of the nodes of a connected graph, each of which makes it acyclic (the paper's Algorithm 2, DAGDecompose).

An ordering belongs to a root and a depth s. It starts with s - 1 levels of depth-first search, where only a node that
has a choice counts as a level, goes on with a partial breadth-first step (a child and a random proper subset of its
free siblings), then breadth-first; siblings left over continue in the same way, until all nodes are placed. Depth 0
is breadth-first alone. Neighbours are taken in random order throughout.

In a directed graph the search follows the arcs. What the root cannot reach is searched next, and placed in front of
it: no arc leads from what was reached to what was not, so that none is lost between the two.
"""

import numpy as np

from graphgps_spse.jit import kernel

MAX_FAILURES = 5
"""Tries for one root and depth that may give an acyclic graph again before the depth ends."""


@kernel
def fill_keys(row_ptr, col, seed, keys):
    """Write a key for each repeat: equal for equal seeds and arcs. `keys` is [repeats] uint64."""
    key = _mix(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15))
    for v in range(len(row_ptr) - 1):
        key = _mix(key ^ np.uint64(row_ptr[v + 1] - row_ptr[v]))
        for e in range(row_ptr[v], row_ptr[v + 1]):
            key = _mix(key ^ np.uint64(col[e]))
    for repeat in range(len(keys)):
        keys[repeat] = _mix(key + np.uint64(repeat))


@kernel
def choose_roots(link_ptr, link_col, key, limit, roots):
    """Fill `roots`, [number] int64, with different nodes that lie far apart; fewer roots are the first of more.

    The first is random, the second farthest from it; each later one has the lowest sum of two ranks, those of its
    distance from the last two roots, farthest first. Ties are broken at random. Stops early if limit[0] is negative.
    """
    num_nodes = len(link_ptr) - 1
    state = np.array([_mix(key[0] ^ np.uint64(0x526F6F7473))])
    candidates = np.arange(num_nodes)
    score = np.zeros(num_nodes, np.int64)  # by node: sum of the ranks
    rank_by_last = np.zeros((2, num_nodes), np.int64)
    queue, distance = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
    farther = np.zeros(num_nodes + 1, np.int64)
    for number in range(len(roots)):
        if limit[0] < 0:
            break
        left = num_nodes - number
        best, ties = 0, 0
        for c in range(left):
            if ties and score[candidates[c]] > score[candidates[best]]:
                continue
            ties = 1 if not ties or score[candidates[c]] < score[candidates[best]] else ties + 1
            if _below(state, ties) == 0:
                best = c
        root = candidates[best]
        roots[number], candidates[best] = root, candidates[left - 1]
        _measure_distances(link_ptr, link_col, root, queue, distance)
        farther[:] = 0
        for c in range(left - 1):
            farther[distance[candidates[c]]] += 1
        for d in range(num_nodes - 1, -1, -1):
            farther[d] += farther[d + 1]  # now the number of candidates at distance d or more
        ranks = rank_by_last[number % 2]
        for c in range(left - 1):
            node = candidates[c]
            ranks[node] = farther[distance[node] + 1]
            score[node] = rank_by_last[0, node] + rank_by_last[1, node]


@kernel
def make_orderings(row_ptr, col, roots, first_root, max_depth, num_tries, key, seen, limit, orders):
    """Write the orderings of some roots, `roots[i]` being root number first_root + i, into `orders` [.., N] int64.

    Depths are 0 .. max_depth, each with up to `num_tries` orderings of different acyclic graphs. `seen` is a table of
    the acyclic graphs met so far, [power of two] uint64, 0 where free; those in it are not written again. Returns the
    number of orderings written and of tries; stops early if limit[0] is negative.
    """
    num_nodes = len(row_ptr) - 1
    codes = np.empty(len(col), np.uint64)
    for v in range(num_nodes):
        for e in range(row_ptr[v], row_ptr[v + 1]):
            codes[e] = _mix(np.uint64(v * num_nodes + col[e] + 1))
    taken, place = np.zeros(num_nodes, np.bool_), np.empty(num_nodes, np.int64)
    order, scratch = np.empty(num_nodes, np.int64), np.empty((6, num_nodes + 1), np.int64)
    children, found = np.empty(len(col) + 1, np.int64), np.empty(num_tries, np.uint64)
    state = np.zeros(1, np.uint64)
    num_written, total_tries = 0, 0
    for i in range(len(roots)):
        for depth in range(max_depth + 1):
            state[0] = _mix(_mix(key[0] + np.uint64(first_root + i)) + np.uint64(depth))
            num_found, failures = 0, 0
            while num_found < num_tries and failures < MAX_FAILURES and limit[0] >= 0:
                total_tries += 1
                _order_nodes(row_ptr, col, roots[i], depth, state, taken, scratch, children, order, orders[num_written])
                code = _code_of(row_ptr, col, codes, orders[num_written], place)
                repeated = False
                for f in range(num_found):
                    repeated = repeated or found[f] == code
                if repeated:
                    failures += 1
                    continue
                found[num_found] = code
                num_found += 1
                if _add_to(seen, code):
                    num_written += 1
    return num_written, total_tries


@kernel
def _order_nodes(row_ptr, col, root, depth, state, taken, scratch, children, order, out):
    """Write one ordering to `out` [N]; the parts that several searches found stand in reverse."""
    num_nodes = len(out)
    taken[:] = False
    filled, num_parts, start = np.int64(0), 0, root  # a plain 0 would have all that follows compiled for it, too
    ends = scratch[5]
    while True:
        filled = _search(row_ptr, col, start, depth, state, taken, scratch, children, order, filled)
        ends[num_parts] = filled
        num_parts += 1
        if filled == num_nodes:
            break
        if num_parts == 1:
            start = _below(state, num_nodes)
        while taken[start]:
            start = (start + 1) % num_nodes
    written = 0
    for part in range(num_parts - 1, -1, -1):
        begin = ends[part - 1] if part else 0
        for p in range(begin, ends[part]):
            out[written] = order[p]
            written += 1


@kernel
def _search(row_ptr, col, start, switch, state, taken, scratch, children, order, filled):
    """Append `start` and all free nodes that it reaches to `order` from `filled` on; return where they end.

    Level h of the stack holds the children of one node, children[first[h]:end[h]], of which cursor[h] is next; `above`
    counts the choices before that node, `below` with its own. At `switch` choices the search becomes breadth-first.
    """
    first, end, cursor, above, below = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    node, choices, height, used = start, 0, 0, np.int64(0)
    while node >= 0 or height:
        if node >= 0:
            filled = _place(node, taken, order, filled)
            begin = used
            for e in range(row_ptr[node], row_ptr[node + 1]):
                if not taken[col[e]]:
                    children[used] = col[e]
                    used += 1
            _shuffle(children, begin, used, state)
            if choices == switch:
                head = filled
                for c in range(begin, used):
                    filled = _place(children[c], taken, order, filled)
                filled = _breadth_first(row_ptr, col, state, taken, order, head, filled)
                used = begin
            elif used > begin:
                first[height], end[height], cursor[height] = begin, used, begin
                above[height], below[height] = choices, choices + (used - begin > 1)
                height += 1
            node = -1
            continue
        top = height - 1
        c, last = cursor[top], _drop_taken(children, cursor[top], end[top], taken)
        cursor[top], end[top] = c + 1, last
        if c == last:
            used, height = first[top], top
            continue
        size = _below(state, last - c - 1) if above[top] == switch - 1 and last - c > 1 else 0
        if size:
            head = filled
            filled = _place(children[c], taken, order, filled)
            for s in range(c + 1, c + 1 + size):
                other = s + _below(state, last - s)
                children[s], children[other] = children[other], children[s]
                filled = _place(children[s], taken, order, filled)
            filled = _breadth_first(row_ptr, col, state, taken, order, head, filled)
        else:
            node, choices = children[c], below[top]
    return filled


@kernel
def _breadth_first(row_ptr, col, state, taken, order, head, filled):
    """Append what the nodes from order[head] on reach, nearest first; return where it ends."""
    while head < filled:
        node, begin = order[head], filled
        for e in range(row_ptr[node], row_ptr[node + 1]):
            if not taken[col[e]]:
                filled = _place(col[e], taken, order, filled)
        _shuffle(order, begin, filled, state)
        head += 1
    return filled


@kernel
def _place(node, taken, order, filled):
    taken[node] = True
    order[filled] = node
    return filled + 1


@kernel
def _drop_taken(children, begin, end, taken):
    """Keep the free ones of children[begin:end], in their order; return where they end."""
    kept = begin
    for c in range(begin, end):
        if not taken[children[c]]:
            children[kept] = children[c]
            kept += 1
    return kept


@kernel
def _code_of(row_ptr, col, codes, order, place):
    """Return a number, not 0, that tells the acyclic graphs apart: which arcs lead forward."""
    for p in range(len(order)):
        place[order[p]] = p
    total = np.uint64(0)
    for v in range(len(order)):
        here = place[v]
        for e in range(row_ptr[v], row_ptr[v + 1]):
            total ^= codes[e] * np.uint64(place[col[e]] > here)
    return total | np.uint64(1)


@kernel
def _add_to(seen, code):
    """Add `code` to a hash table and return whether it is new, as far as a few slots tell."""
    mask = np.uint64(len(seen) - 1)
    slot = (code >> np.uint64(1)) & mask
    for _ in range(64):
        if seen[slot] == code:
            return False
        if seen[slot] == np.uint64(0):
            seen[slot] = code
            return True
        slot = (slot + np.uint64(1)) & mask
    return True


@kernel
def _measure_distances(link_ptr, link_col, root, queue, distance):
    distance[:] = -1
    queue[0], distance[root] = root, 0
    head, filled = 0, 1
    while head < filled:
        node = queue[head]
        head += 1
        for e in range(link_ptr[node], link_ptr[node + 1]):
            if distance[link_col[e]] < 0:
                distance[link_col[e]] = distance[node] + 1
                queue[filled] = link_col[e]
                filled += 1


@kernel
def _shuffle(values, begin, end, state):
    for i in range(end - 1, begin, -1):
        j = begin + _below(state, i - begin + 1)
        values[i], values[j] = values[j], values[i]


@kernel
def _below(state, bound):
    """Return a random whole number from 0 to bound - 1; the bias, bound / 2^32, does not matter here."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return np.int64(((_mix(state[0]) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@kernel
def _mix(x):
    """Return the bits of a uint64 well mixed (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
