"""Scripts of the repository as modules, so that tests can call their functions."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load_script(name: str, folder: str = "scripts") -> ModuleType:
    """Return `FOLDER/NAME.py` as a fresh module."""
    location = spec_from_file_location(f"script_{name}", ROOT / folder / f"{name}.py")
    module = module_from_spec(location)
    location.loader.exec_module(module)
    return module
