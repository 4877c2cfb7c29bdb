"""Scripts of the repository as modules, so that tests can call their functions."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load_script(name: str, folder: str = "scripts") -> ModuleType:
    """Return `FOLDER/NAME.py` as a fresh module. As it is loaded, it finds modules of its folder, like a script."""
    location = spec_from_file_location(f"script_{name}", ROOT / folder / f"{name}.py")
    module = module_from_spec(location)
    sys.path.insert(0, str(ROOT / folder))
    try:
        location.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / folder))
    return module
