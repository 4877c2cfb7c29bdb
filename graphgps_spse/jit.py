"""How kernels are compiled: at their first call, without the GIL, and kept on disk for later processes.

This is the only module that imports numba. numba has a cache of its own, which raises an error at import where no
folder can be written, and at a call where the disk is full or a cached file is damaged. It also runs damaged machine
code unnoticed. The cache here uses numba's folders and numba's serialisation, checks every file that it reads, and
falls back to a temporary folder.
"""

import hashlib
import inspect
import logging
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Collection
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, UserWideCacheLocator, _Cache
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.serialize import dumps

from graphgps_spse.files import write_atomic

log = logging.getLogger(__name__)

REASSOCIATE = frozenset({"reassoc", "nsz"})
"""Fast-math flags that allow sums in any order, as vector instructions need. For integers all orders are equal."""

_DIGEST_BYTES = 32  # of SHA-256


def kernel(
    function: Callable | None = None,
    *,
    fastmath: Collection[str] = (),
    error_model: str = "python",
    distinct_arrays: bool = False,
) -> Any:
    """Compile `function` at its first call, once for each combination of argument types.

    `fastmath` names the LLVM flags that may change results, e.g. "reassoc" for sums in any order. `error_model` "numpy"
    divides by zero without an error. `distinct_arrays` is the caller's promise that no two array arguments overlap.
    A kernel on disk is compiled again when its file, that of a kernel it calls, or a constant it uses has changed.
    """
    if function is None:
        return lambda f: kernel(f, fastmath=fastmath, error_model=error_model, distinct_arrays=distinct_arrays)
    options: dict[str, Any] = {"nogil": True, "error_model": error_model}
    if fastmath:
        options["fastmath"] = set(fastmath)
    if distinct_arrays:
        options["pipeline_class"] = _DistinctArrays
    compiled: Any = numba.njit(**options)(function)
    if compiled is not function:  # with NUMBA_DISABLE_JIT it is
        compiled._cache = KernelCache(function, f"{sorted(fastmath)} {error_model} {distinct_arrays}")
    return compiled


class _DistinctArrays(CompilerBase):
    """Compiles on the promise that no two array arguments overlap."""

    def define_pipelines(self) -> list:
        """Return numba's default passes, with the promise made."""
        self.state.flags.noalias = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class KernelCache(_Cache):
    """The compiled versions of one kernel on disk; numba asks for them when the kernel is first called.

    No file is touched before that. Files are written to the first of numba's folders that can be written, which are
    NUMBA_CACHE_DIR, the __pycache__ beside the source and the user's cache folder. Where none can be written, or the
    disk is full, they are written to `spare_folder()`, with one warning for each process.
    """

    def __init__(self, function: Callable, options: str) -> None:
        self._function, self._options = function, options

    @cached_property
    def _usual(self) -> "_Folder | None":
        try:
            return _Folder(self._function, self._options)
        except (RuntimeError, OSError):  # numba found no folder that can be written
            return None

    def _spare(self, *, make: bool) -> "_Folder | None":
        try:
            return None if spare_folder(make=make) is None else _SpareFolder(self._function, self._options)
        except (RuntimeError, OSError):
            return None

    @property
    def cache_path(self) -> str | None:
        """The folder that this kernel's files are written to first; None if numba finds none."""
        return None if self._usual is None else self._usual.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled version for one signature, or None if no folder has an intact one."""
        for folder in (self._usual, self._spare(make=False)):
            try:
                found = None if folder is None else folder.load_overload(sig, target_context)
            except OSError as err:
                log.info("a compiled kernel cannot be read and is compiled again: %s", err)
                continue
            if found is not None:
                return found
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled version for one signature; warn where only the spare folder, or none, can hold it."""
        usual, reason = self._usual, "numba finds no folder that can be written"
        if usual is not None:
            try:
                return usual.save_overload(sig, data)
            except OSError as err:
                reason = err.strerror or str(err)
        spare = self._spare(make=True)
        if spare is not None:
            try:
                spare.save_overload(sig, data)
                return _warn(f"compiled kernels are kept in {spare_folder(make=True)}: {reason}")
            except OSError as err:
                reason = err.strerror or str(err)
        _warn(f"compiled kernels cannot be kept, so every process compiles them again: {reason}")

    def flush(self) -> None:
        """Do nothing: a version that is compiled again replaces its file."""

    def enable(self) -> None:
        """Do nothing: the cache is always enabled."""

    disable = enable


def spare_folder(*, make: bool) -> Path | None:
    """Return the user's temporary folder of compiled kernels; None if it does not exist or cannot be trusted.

    Cached files hold code, so the folder must belong to the user and be closed to others.
    """
    try:
        folder = _spare_path()
        if make:
            folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    closed = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return folder if closed and stat.S_ISDIR(found.st_mode) else None


def _spare_path() -> Path:
    return Path(tempfile.gettempdir()) / f"graphgps_spse-kernels-{os.getuid()}"


@cache  # one warning for each problem and process, however many kernels meet it
def _warn(problem: str) -> None:
    log.warning("%s. Set NUMBA_CACHE_DIR to a folder that can be written and has 20 MB left", problem)


class _Folder(FunctionCache):
    """One kernel's files in one folder: one file for each combination of argument types."""

    def __init__(self, function: Callable, options: str) -> None:
        """Raises RuntimeError if no folder can be written."""
        super().__init__(function)
        source = self._impl.locator.get_source_stamp(), options, dependencies(function)
        self._cache_file = _CheckedFiles(Path(self.cache_path) / self._impl.filename_base, source)


def dependencies(function: Callable) -> list[tuple[str, str]]:
    """Return what the code of a kernel depends on: files of kernels it calls, and values of constants, sorted.

    numba itself looks at the kernel's own file alone.
    """
    found, seen, todo = set(), {function}, [function]
    while todo:
        variables = inspect.getclosurevars(todo.pop())
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            called = getattr(value, "py_func", None)
            if called is None:
                value = getattr(value, "_fields", value)  # of a NamedTuple that the kernel makes
                if isinstance(value, bool | int | float | str | tuple):
                    found.add((name, repr(value)))
            elif called not in seen:
                seen.add(called)
                todo.append(called)
                path = Path(called.__code__.co_filename)
                found.add((path.name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return sorted(found)


class _SpareLocator(UserWideCacheLocator):
    """Tells numba to use the spare folder."""

    def __init__(self, py_func: Callable, py_file: str) -> None:
        super().__init__(py_func, py_file)
        self._cache_path = str(_spare_path() / self.get_suitable_cache_subpath(py_file))


class _SpareImpl(CompileResultCacheImpl):
    _locator_classes = [_SpareLocator]


class _SpareFolder(_Folder):
    _impl_class: Any = _SpareImpl


class _CheckedFiles(IndexDataCacheFile):
    """Reads and writes compiled code, a file for each key.

    A file holds the SHA-256 of all that follows, the SHA-256 of what the code belongs to, and the code.
    """

    def __init__(self, base: Path, source: tuple[Any, ...]) -> None:
        """`base` is the path of the files but for the key; `source` identifies the source code and its options."""
        self._base, self._source = base, source

    def load(self, key: tuple) -> Any:
        """Return the code for a key; None if there is none, or none of this source and version, or it is damaged."""
        path, owner = self._path(key), self._owner(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if digest != hashlib.sha256(rest).digest():
            log.info("%s is damaged", path)
            _warn("compiled kernels on disk are damaged and are compiled again")
            return None
        return pickle.loads(rest[_DIGEST_BYTES:]) if rest[:_DIGEST_BYTES] == owner else None

    def save(self, key: tuple, data: Any) -> None:
        """Write the code for a key. Raises OSError."""
        rest = self._owner(key) + dumps(data)
        write_atomic(self._path(key), hashlib.sha256(rest).digest() + rest)

    def _path(self, key: tuple) -> Path:
        return self._base.with_name(f"{self._base.name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc")

    def _owner(self, key: tuple) -> bytes:
        return hashlib.sha256(repr((numba.__version__, self._base.name, self._source, key)).encode()).digest()
