"""How kernels are compiled: on first use, without the GIL, and kept on disk where there is a place to keep them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numba


def kernel(function: Callable | None = None, *, reassociate: bool = False) -> Any:
    """Compile `function` at its first call; the machine code is cached across runs.

    `reassociate` lets sums be taken in any order, as vector instructions need: for integers, all orders are equal.
    Where neither the folder of the source nor the user's cache folder can be written, every process compiles anew.
    A kernel calls only kernels of its own file: numba notices a change to the file, not to what it calls elsewhere.
    """
    if function is None:
        return partial(kernel, reassociate=reassociate)
    options = {"nogil": True, "fastmath": {"reassoc", "nsz"}} if reassociate else {"nogil": True}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no folder for the cache
        return numba.njit(**options)(function)
