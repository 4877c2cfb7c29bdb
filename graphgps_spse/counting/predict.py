"""How much work exact counting takes: the search tree, estimated by random descents (Knuth 1975)."""

import numpy as np

from graphgps_spse.jit import kernel

_MAX_PROBES = 512
_MAX_ARCS = 100_000  # looked at in all descents: about 0.1 ms


def predict_paths(ptr: np.ndarray, col: np.ndarray, max_length: int) -> np.ndarray:
    """Return [max_length + 1] float64: about how many simple paths of 0 to max_length edges one graph (CSR) has.

    An unbiased estimate that depends on the arguments alone; above float64 it is infinite.
    """
    return _probe(ptr, col, _MAX_PROBES, _MAX_ARCS, np.zeros(max_length + 1))


@kernel
def _probe(ptr, col, max_probes, max_arcs, sums):
    """Descend at random from random nodes; the product of the numbers of choices estimates the paths of each length."""
    n, state = len(ptr) - 1, np.uint64(0x9E3779B97F4A7C15)
    seen, around = np.full(n, -1, np.int64), np.empty(n, np.int64)
    num_probes, arcs = 0, 0
    while num_probes < max_probes and (arcs < max_arcs or num_probes < 16):
        node, paths = np.int64((state >> np.uint64(33)) % np.uint64(n)), float(n)
        for k in range(len(sums)):
            sums[k] += paths
            seen[node] = num_probes
            choices = 0
            for e in range(ptr[node], ptr[node + 1]):
                if seen[col[e]] != num_probes:
                    around[choices] = col[e]
                    choices += 1
            arcs += ptr[node + 1] - ptr[node] + 4
            if choices == 0:
                break
            paths *= choices
            state ^= state << np.uint64(13)  # xorshift (Marsaglia 2003)
            state ^= state >> np.uint64(7)
            state ^= state << np.uint64(17)
            node = around[np.int64((state >> np.uint64(33)) % np.uint64(choices))]
        num_probes += 1
    return sums / num_probes
