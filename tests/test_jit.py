"""Compiled kernels on disk: without a folder for them, on a full disk, with damaged, exchanged and outdated files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from graphgps_spse.jit import _CheckedFiles

ROOT = Path(__file__).resolve().parents[1]
KERNELS = """
from graphgps_spse.jit import kernel

@kernel
def double(x):
    return 2 * x

@kernel
def triple(x):
    return 3 * x
"""
CALL = "assert (toy.double(21), toy.triple(5)) == (42, 15)"
REPORT = "print([sum(k.stats.cache_hits.values()) for k in (toy.double, toy.triple)])"


@pytest.fixture(scope="module")
def code_folder(tmp_path_factory):
    """A folder with a module of two kernels, toy.py, that holds no cache and cannot get one; and a filled cache."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(KERNELS)
    block(folder / "__pycache__")
    assert run_toy(Toy(folder, folder)) == ("[0, 0]", "")
    return folder


class Toy(NamedTuple):
    """Where a test runs: the folder of toy.py, and one of its own with a cache and a temporary folder."""

    code: Path
    own: Path

    @property
    def cache(self):
        return self.own / "cache"

    @property
    def tmp(self):
        return self.own / "tmp"


@pytest.fixture
def toy(code_folder, tmp_path):
    """An empty cache."""
    (tmp_path / "tmp").mkdir()
    return Toy(code_folder, tmp_path)


@pytest.fixture
def filled(toy):
    """A cache that holds both kernels."""
    shutil.copytree(toy.code / "cache", toy.cache)
    return toy


def run_python(code, folder, path, **environment):
    """Run code with the user's cache folder out of reach and a temporary folder of its own."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "TMPDIR": str(folder / "tmp"), **environment}
    env |= {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env=env, cwd=folder, capture_output=True, text=True, timeout=300)


def run_toy(toy, code=CALL, *, cache=True):
    """Run code that calls both kernels; return the numbers of versions read from the cache, and what was logged."""
    where = str(toy.cache) if cache else "/dev/null/cache"
    done = run_python(f"import toy; {code}\n{REPORT}", toy.own, (toy.code, ROOT), NUMBA_CACHE_DIR=where)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def compiled_files(folder):
    return sorted(folder.rglob("*.nbc"))


def one_warning(error, *words):
    """Whether one line was logged, which names the cure."""
    lines = error.strip().splitlines()
    return len(lines) == 1 and "NUMBA_CACHE_DIR" in lines[0] and all(word in lines[0] for word in words)


def block(folder):
    """Make a file where a folder would be made: no user can write into it, not even root."""
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.write_text("")


def test_a_later_process_compiles_nothing(filled):
    assert len(compiled_files(filled.cache)) == 2
    assert run_toy(filled) == ("[1, 1]", "")


def test_without_a_folder_that_can_be_written(toy):
    found, error = run_toy(toy, cache=False)
    assert found == "[0, 0]" and one_warning(error, "kept in")
    assert len(compiled_files(toy.tmp)) == 2
    assert run_toy(toy, cache=False) == ("[1, 1]", "")


def test_a_temporary_folder_that_others_can_write_is_not_read(toy):
    run_toy(toy, cache=False)
    (spare,) = toy.tmp.iterdir()
    assert spare.stat().st_mode & 0o777 == 0o700
    spare.chmod(0o777)
    found, error = run_toy(toy, cache=False)
    assert found == "[0, 0]" and one_warning(error, "every process compiles them again")


def test_without_any_folder(toy):
    found, error = run_toy(toy, f"import tempfile; tempfile.tempdir = '/dev/null'; {CALL}", cache=False)
    assert found == "[0, 0]" and one_warning(error, "every process compiles them again")


def test_a_folder_that_goes_away(toy):
    """The folder becomes a file between two versions of one kernel; the second goes to the temporary folder."""
    where = repr(str(toy.cache))
    code = f"import shutil; toy.double(1); shutil.rmtree({where}); open({where}, 'w'); toy.double(1.5)"
    _, error = run_toy(toy, code)
    assert one_warning(error, "kept in", "Not a directory") and len(compiled_files(toy.tmp)) == 1


def test_a_file_system_that_takes_no_more(filled):
    """Every write fails, as on a full disk; no unfinished file is left."""
    before = compiled_files(filled.own)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    _, error = run_toy(filled, f"{limit}; assert (toy.double(1.5), toy.triple(1.5)) == (3.0, 4.5)")
    assert one_warning(error, "every process compiles them again", "too large")
    assert compiled_files(filled.own) == before and not list(filled.own.rglob("*.tmp"))


def test_a_full_cache_folder(toy):
    """Kernels that do not fit into a small file system go to the temporary folder and are found there."""
    toy.cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(toy.cache)]
    if os.getuid() != 0 or not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        (toy.cache / "filling").write_bytes(bytes(60 << 10))
        found, error = run_toy(toy)
        assert found == "[0, 0]" and one_warning(error, "No space left on device")
        assert run_toy(toy) == ("[1, 1]", "")
    finally:
        subprocess.run(["umount", str(toy.cache)], check=True)


@pytest.mark.parametrize("damages", [("empty", "cut"), ("foreign", "flipped")])
def test_damaged_files_are_compiled_again(filled, damages):
    for file, damage in zip(compiled_files(filled.cache), damages, strict=True):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        cut = content[:-1]
        file.write_bytes({"empty": b"", "cut": cut, "flipped": content, "foreign": b"\x80\x04N."}[damage])
    found, error = run_toy(filled)
    assert found == "[0, 0]" and one_warning(error, "damaged")
    if "flipped" in damages:  # the files were replaced
        assert run_toy(filled) == ("[1, 1]", "")


def test_a_file_of_another_kernel_is_not_run(filled):
    double, triple = compiled_files(filled.cache)
    shutil.copy(double, triple)
    assert run_toy(filled) == ("[1, 0]", "")


def test_a_kernel_whose_source_changed_is_compiled_again(tmp_path):
    """A changed constant leaves the byte code as it was; the file of the earlier version is replaced."""
    (tmp_path / "tmp").mkdir()
    toy = Toy(tmp_path, tmp_path)
    for factor in (2, 4):
        (tmp_path / "toy.py").write_text(KERNELS.replace("2 * x", f"{factor} * x"))
        assert run_toy(toy, f"assert toy.double(21) == {factor * 21}")[0] == "[0, 0]"
    assert len(compiled_files(tmp_path)) == 1


def test_every_damaged_byte_is_noticed(tmp_path, caplog):
    files = _CheckedFiles(tmp_path / "toy.double", ("source",))
    files.save((1, 2), "code")
    assert files.load((1, 2)) == "code" and files.load((1, 3)) is None
    (path,) = compiled_files(tmp_path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert files.load((1, 2)) is None, place
    path.write_bytes(content)
    assert _CheckedFiles(tmp_path / "toy.double", ("changed source",)).load((1, 2)) is None
    assert files.load((1, 2)) == "code"


def test_kernels_of_every_room_without_a_folder(tmp_path):
    """A package that cannot be written, a home that cannot, and kernels of counting, encodings, models and data."""
    package = shutil.copytree(
        ROOT / "graphgps_spse", tmp_path / "lib" / "graphgps_spse", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in {file.parent for file in package.rglob("*.py")}:
        block(folder / "__pycache__")
    (tmp_path / "tmp").mkdir()
    code = f"""
import numpy as np
from graphgps_spse.counting.random_bits import mix_bits
from graphgps_spse.encodings.base import GraphArrays
from graphgps_spse.encodings.random_walks import walk_probabilities
from graphgps_spse.ops.chromatic_attention.cpu_kernels import kernels
from graphgps_spse.data.superpixels import argpartition_rows
import graphgps_spse
assert graphgps_spse.__file__.startswith({str(tmp_path)!r})
assert mix_bits(np.uint64(0)) == 0
edge = GraphArrays(np.array([0, 2]), np.array([0, 2]), np.array([[0, 1], [1, 0]]))
assert walk_probabilities(edge, 2, pairs=False)[1].tolist() == [[1.0, 0.0], [1.0, 0.0]]
kernels(1, 1)
assert argpartition_rows(np.array([[3.0, 1.0, 2.0]]), 0)[0, 0] == 1
"""
    done = run_python(code, tmp_path, (tmp_path / "lib",), NUMBA_CACHE_DIR="")
    assert done.returncode == 0, done.stderr
    assert one_warning(done.stderr, "kept in")
    rooms = {file.parent.name.split("_")[0] for file in compiled_files(tmp_path / "tmp")}
    assert rooms == {"counting", "encodings", "data"}


def test_a_kernel_is_compiled_again_when_what_it_uses_changes(tmp_path):
    """A kernel of another file, called by way of a third one, and a constant of another file."""
    (tmp_path / "tmp").mkdir()
    toy = Toy(tmp_path, tmp_path)
    kernel = "from graphgps_spse.jit import kernel\n"
    (tmp_path / "middle.py").write_text(
        f"{kernel}import end\nlast = end.last\n@kernel\ndef middle(x):\n    return last(x)\n"
    )
    (tmp_path / "toy.py").write_text(
        f"{kernel}from constants import FACTOR\nfrom middle import middle\n"
        "@kernel\ndef double(x):\n    return FACTOR * middle(x)\n@kernel\ndef triple(x):\n    return 3 * x\n"
    )
    for factor, added in ((2, 0), (2, 1), (5, 1)):
        (tmp_path / "constants.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / "end.py").write_text(f"{kernel}@kernel\ndef last(x):\n    return x + {added}\n")
        found, _ = run_toy(toy, f"assert toy.double(10) == {factor * (10 + added)}; assert toy.triple(1) == 3")
        assert found == ("[0, 0]" if (factor, added) == (2, 0) else "[0, 1]")  # what did not change is read
