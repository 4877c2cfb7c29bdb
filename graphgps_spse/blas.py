"""BLAS and LAPACK on one thread, for kernels that have threads of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock


class SingleThreadedBlas:
    """Limits BLAS and LAPACK to one thread while any thread of this process is inside `limit`."""

    def __init__(self) -> None:
        # numba calls the BLAS and LAPACK of SciPy. ThreadpoolController finds only libraries that are already loaded.
        import scipy.linalg.cython_lapack  # noqa: F401
        from threadpoolctl import ThreadpoolController

        self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        self._lock, self._inside, self._former = Lock(), 0, [0] * len(self._libraries)

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Return a context in which BLAS and LAPACK use one thread."""
        with self._lock:
            if not self._inside:
                self._former = [library.get_num_threads() for library in self._libraries]
                self._set([1] * len(self._libraries))
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._set(self._former)

    def _set(self, numbers: list[int]) -> None:
        for library, number, former in zip(self._libraries, numbers, self._former):
            if former != 1:
                library.set_num_threads(number)


@cache
def single_threaded_blas() -> SingleThreadedBlas:
    """Return the object whose `limit()` is a context in which BLAS and LAPACK use one thread."""
    return SingleThreadedBlas()
