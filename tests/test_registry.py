"""Names to components."""

import sys
import textwrap

import pytest

from graphgps_spse import registry
from graphgps_spse.errors import ConfigError
from graphgps_spse.registry import ALL, Registry, nearest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of components on disk; returns a function that adds a module to it."""
    name = f"parts_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from graphgps_spse.registry import Registry\nparts = Registry('part', __name__)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(module: str, text: str) -> Registry:
        (folder / f"{module}.py").write_text(f"from {name} import parts\n" + textwrap.dedent(text))
        __import__(name)
        return sys.modules[name].parts

    return add


def test_component_exists_because_its_file_does(package):
    package("b", "@parts.register('Beta')\nclass Beta: pass\n")
    parts = package("a", "@parts.register('Alpha')\nclass Alpha: pass\n")
    assert parts.names() == ["Alpha", "Beta"]
    assert parts.get("Alpha").__name__ == "Alpha"


def test_unknown_name_says_nearest_and_lists_all(package):
    package("b", "@parts.register('Beta')\nclass Beta: pass\n")
    parts = package("a", "@parts.register('Alpha')\nclass Alpha: pass\n")
    with pytest.raises(ConfigError, match="unknown part 'Alhpa'. Did you mean 'Alpha'. Known: Alpha, Beta"):
        parts.get("Alhpa")


def test_broken_module_raises_and_duplicate_raises(package):
    parts = package("a", "import no_such_module_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        parts.names()
    fresh = Registry("part", "x")
    fresh.register("One")(object)
    with pytest.raises(ValueError, match="One"):
        fresh.register("One")(int)


def test_nearest_is_silent_when_nothing_is_near():
    assert nearest("zzzzz", ["alpha"]) == ""


@pytest.mark.parametrize("kind", ALL, ids=lambda r: r.kind)
def test_every_component_is_documented(kind):
    assert kind.names()
    for name in kind.names():
        assert (kind.get(name).__doc__ or "").strip(), f"{kind.kind} {name} has no docstring"


def test_all_lists_every_registry():
    assert set(ALL) == {value for value in vars(registry).values() if isinstance(value, Registry)}
