"""Random numbers inside kernels: SplitMix64 (Steele, Lea and Flood 2014)."""

import numpy as np

from graphgps_spse.jit import kernel

GOLDEN = 0x9E3779B97F4A7C15
"""The step between the states of SplitMix64."""


@kernel(copied_into_callers=True)
def mix_bits(x):
    """Return the bits of a uint64 well mixed: the finaliser of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def random_below(state, bound):
    """Return a random whole number from 0 to bound - 1; the bias, bound / 2^32, does not matter here.

    `state` [1] uint64 is the state of the generator.
    """
    state[0] += np.uint64(GOLDEN)
    return np.int64(((mix_bits(state[0]) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@kernel
def shuffle(values, begin, end, state):
    """Bring values[begin:end] into a random order."""
    for i in range(end - 1, begin, -1):
        j = begin + random_below(state, i - begin + 1)
        values[i], values[j] = values[j], values[i]
