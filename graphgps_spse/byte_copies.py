"""Copies of memory by address, for kernels that take arrays of any type as bytes."""

import ctypes


def copy_bytes(target: int, source: int, count: int) -> None:
    """Copy `count` bytes from one address to another. In a kernel, this is the function memcpy of C."""
    ctypes.memmove(int(target), int(source), int(count))
