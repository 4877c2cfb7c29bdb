"""Plugins: modules listed under `plugins:` in a configuration. Loading the configuration imports them.

Plugins are imported from PYTHONPATH and from installed packages. Python also searches the current folder and the folder
of the script, but plugins are not imported from there, and never from a folder of results, which runs write to.
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
    """Import a plugin by its dotted name, and log the path of its code. Plugins in the folders `results` are refused.

    Raises ConfigError if the module does not exist, cannot be imported or is in a folder of results.
    """
    packages = name.split(".")
    if not all(part.isidentifier() for part in packages):
        raise ConfigError(f"plugins: {show(name)} is not the name of a module, such as my_lab.my_encoding")
    if packages[0] in sys.stdlib_module_names or packages[0] == "__main__":
        raise ConfigError(f"plugins: '{name}' is a module of Python itself, not a plugin")
    is_new, places, entries = name not in sys.modules, list[Path](), list[Path]()
    try:
        with _search_path_for_plugins():
            for end in range(1, len(packages) + 1):
                module = ".".join(packages[:end])
                places = _locate(module)  # imports the parent package, so each level is checked before the next
                entries = entries or [place.parent for place in places]
                _check_place(module, places, entries, results)
            found = importlib.import_module(name)
    except ImportError as err:
        hint = ""
        if err.name == packages[0]:
            hint = ". Add its folder to PYTHONPATH: the current folder and the folder of the script are not searched"
        raise ConfigError(f"plugins: '{name}' cannot be imported: {err}{hint}") from err
    except SyntaxError as err:
        raise ConfigError(f"plugins: '{name}': {err.filename}, line {err.lineno}: {err.msg}") from err
    if is_new:
        log.warning("plugin %s: its code is imported from %s", name, places[0] if places else "memory")
    return found


def _locate(module: str) -> list[Path]:
    """Return the file of a module, or the folders of a package."""
    spec = find_spec(module)
    if spec is None:
        raise ModuleNotFoundError(f"No module named '{module}'", name=module)
    if spec.submodule_search_locations is not None:
        return [Path(folder).resolve() for folder in spec.submodule_search_locations]
    return [Path(spec.origin).resolve()] if spec.has_location and spec.origin else []


def _check_place(module: str, places: Sequence[Path], entries: Sequence[Path], results: Sequence[str]) -> None:
    """Raise ConfigError if a module is in a folder of results that is not itself on the search path."""
    for folder in (Path(result).resolve() for result in results):
        is_named = any(entry.is_relative_to(folder) for entry in entries)
        if not is_named and any(place.is_relative_to(folder) for place in places):
            raise ConfigError(f"plugins: '{module}' is in {folder}, which runs write to. Move it to another folder")


@contextmanager
def _search_path_for_plugins() -> Iterator[None]:
    """Remove the current folder, the script's and the checkout's from sys.path, unless PYTHONPATH lists them."""
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    checkout = Path(__file__).resolve().parents[2]
    by_accident = {os.path.realpath(os.curdir)}
    by_accident |= {str(checkout)} if checkout.name not in ("site-packages", "dist-packages") else set()
    main_file = getattr(sys.modules["__main__"], "__file__", None)
    by_accident |= {os.path.dirname(os.path.realpath(main_file))} if main_file else set()
    by_accident -= named
    left_out = [(k, entry) for k, entry in enumerate(sys.path) if os.path.realpath(entry or os.curdir) in by_accident]
    for _, entry in left_out:
        sys.path.remove(entry)
    try:
        yield
    finally:
        for k, entry in left_out:
            sys.path.insert(k, entry)
