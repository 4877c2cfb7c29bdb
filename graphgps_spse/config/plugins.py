"""Plugins: modules that a configuration names under `plugins:`, and whose code runs when the configuration is loaded.

They come from PYTHONPATH and from installed packages. Python by itself also looks into the folder of the script or the
current folder; a plugin is not taken from there by accident, and never from a folder of results, which runs write into.
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
    """Import a plugin by its dotted name, and log where its code lies. `results` are folders that hold no plugins.

    Raises ConfigError where the module does not exist, cannot be imported or lies where no plugin may lie.
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
                places = _locate(module)  # which imports the package around it, so each level is checked in turn
                entries = entries or [place.parent for place in places]
                _check_place(module, places, entries, results)
            found = importlib.import_module(name)
    except ImportError as err:
        hint = ""
        if err.name == packages[0]:
            hint = (
                ". Put its folder on PYTHONPATH: the current folder and the script's are searched only if it names them"
            )
        raise ConfigError(f"plugins: '{name}' cannot be imported: {err}{hint}") from err
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
    """Raise ConfigError where a module lies in a folder of results that is not itself on the search path."""
    for folder in (Path(result).resolve() for result in results):
        is_named = any(entry.is_relative_to(folder) for entry in entries)
        if not is_named and any(place.is_relative_to(folder) for place in places):
            raise ConfigError(f"plugins: '{module}' lies in {folder}, which runs write into; keep code elsewhere")


@contextmanager
def _search_path_for_plugins() -> Iterator[None]:
    """Take the current folder, the script's and the checkout's off sys.path, unless they are on PYTHONPATH."""
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
