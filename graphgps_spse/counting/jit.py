"""How kernels are compiled: on first use, without the GIL, and kept on disk where there is a place to keep them."""

from collections.abc import Callable
from typing import Any

import numba


def kernel(function: Callable) -> Any:
    """Compile `function` at its first call; the machine code is cached across runs.

    Where neither the folder of the source nor the user's cache folder can be written, every process compiles anew.
    A kernel calls only kernels of its own file: numba notices a change to the file, not to what it calls elsewhere.
    """
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba found no folder for the cache
        return numba.njit(nogil=True)(function)
