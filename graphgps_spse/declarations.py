"""What the files of a package declare, read from their source: no module is imported, so none imports torch."""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Component(NamedTuple):
    """A class or function below a line such as `@heads.register("graph")`."""

    registry: str
    """The variable of the registry, here `heads`."""
    name: str
    """The name in YAML, here `graph`."""
    module: str
    """The module that registers the component when it is imported."""
    summary: str
    """The first line of the docstring."""


class Declarations(NamedTuple):
    """What the modules of a package declare, sorted by the names of the modules."""

    components: tuple[Component, ...]
    option_modules: tuple[str, ...]
    """Modules with a class of options that has a section, such as `class HeadOptions(Options, section="gnn")`."""


@cache
def read_declarations(package: str) -> Declarations:
    """Return what `package` declares. Raises ValueError where the name of a component is not written as a string."""
    spec = find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"no package '{package}'", name=package)
    folders = [Path(folder) for folder in spec.submodule_search_locations]
    files = {_module_of(path, folder, package): path for folder in folders for path in folder.rglob("*.py")}
    components, option_modules = list[Component](), list[str]()
    for module, path in sorted(files.items()):
        source = path.read_text(encoding="utf-8")
        if ".register(" not in source and "section=" not in source:  # most files, which then need no parsing
            continue
        for node in ast.parse(source, str(path)).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                components += _registrations(node, module)
            if isinstance(node, ast.ClassDef) and any(keyword.arg == "section" for keyword in node.keywords):
                option_modules.append(module)
    return Declarations(tuple(components), tuple(dict.fromkeys(option_modules)))


def first_line(docstring: str | None) -> str:
    """Return the first line of a docstring, or an empty string."""
    return (docstring or "").strip().partition("\n")[0]


def _module_of(path: Path, folder: Path, package: str) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join([package, *(parts[:-1] if parts[-1] == "__init__" else parts)])


def _registrations(node: ast.ClassDef | ast.FunctionDef, module: str) -> list[Component]:
    found = []
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=registry), attr="register"), args=[name]):
                if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                    raise ValueError(f"{module}, line {decorator.lineno}: write the component's name as a string")
                found.append(Component(registry, name.value, module, first_line(ast.get_docstring(node, clean=False))))
    return found
