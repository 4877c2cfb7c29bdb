"""Plugins: modules listed under `plugins:`, which are imported when a configuration is loaded.

Plugins are found on PYTHONPATH and in installed packages. Python would also search the folder of the script and the
current folder; these are excluded, so that no module there is imported by accident. Plugins in folders of results are
always rejected, because runs write there.
"""

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from graphgps_spse.errors import ConfigError, show

log = logging.getLogger(__name__)


def import_plugin(name: str, results: Sequence[str]) -> ModuleType:
    """Import a plugin by its dotted name and log the location of its code.

    Raises ConfigError if the module does not exist, cannot be imported, or is in one of the folders `results`.
    """
    packages = name.split(".")
    if not all(part.isidentifier() for part in packages):
        raise ConfigError(f"plugins: {show(name)} is not the name of a module, such as my_lab.my_encoding")
    if packages[0] in sys.stdlib_module_names or packages[0] == "__main__":
        raise ConfigError(f"plugins: '{name}' is a module of Python itself, not a plugin")
    is_new, paths, entries = name not in sys.modules, list[Path](), list[Path]()
    try:
        with _search_path_for_plugins():
            for end in range(1, len(packages) + 1):
                module = ".".join(packages[:end])
                paths = _locate(module)  # imports the parent package, therefore each level is checked before the next
                entries = entries or [path.parent for path in paths]
                _check_location(module, paths, entries, results)
            found = importlib.import_module(name)
    except ImportError as err:
        hint = ""
        if err.name == packages[0]:
            hint = ". Add its folder to PYTHONPATH, because the current folder is not searched"
        raise ConfigError(f"plugins: '{name}' cannot be imported: {err}{hint}") from err
    if is_new:
        log.warning("plugin %s is imported from %s", name, paths[0] if paths else "memory")
    return found


def _locate(module: str) -> list[Path]:
    """Return the file of a module, or the folders of a package."""
    spec = find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)
    if spec.submodule_search_locations is not None:
        return [Path(folder).resolve() for folder in spec.submodule_search_locations]
    return [Path(spec.origin).resolve()] if spec.has_location and spec.origin else []


def _check_location(module: str, paths: Sequence[Path], entries: Sequence[Path], results: Sequence[str]) -> None:
    """Raise ConfigError if a module is in a folder of results that is not itself on the search path."""
    for folder in (Path(result).resolve() for result in results):
        is_named = any(entry.is_relative_to(folder) for entry in entries)
        if not is_named and any(path.is_relative_to(folder) for path in paths):
            raise ConfigError(f"plugins: '{module}' is in {folder}, a folder of results; move it to another folder")


@contextmanager
def _search_path_for_plugins() -> Iterator[None]:
    """Remove the current folder, the script's folder and the checkout from sys.path, unless they are on PYTHONPATH."""
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    checkout = Path(__file__).resolve().parents[2]
    implicit = {os.path.realpath(os.curdir)}
    implicit |= {str(checkout)} if checkout.name not in ("site-packages", "dist-packages") else set()
    main_file = getattr(sys.modules["__main__"], "__file__", None)
    implicit |= {os.path.dirname(os.path.realpath(main_file))} if main_file else set()
    implicit -= named
    removed = [(k, entry) for k, entry in enumerate(sys.path) if os.path.realpath(entry or os.curdir) in implicit]
    for _, entry in removed:
        sys.path.remove(entry)
    try:
        yield
    finally:
        for k, entry in removed:
            sys.path.insert(k, entry)
