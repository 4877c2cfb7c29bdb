"""Files appear whole or not at all."""

import errno
import json
import os

import pytest

from graphgps_spse.files import write_atomic, write_json


def test_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"x": 0.1 + 0.2})
    write_json(path, {"x": 1 / 3})
    assert json.loads(path.read_text()) == {"x": 1 / 3}
    assert os.listdir(tmp_path) == ["record.json"]


def test_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_atomic(path, b"old")

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record.json"]


def test_two_writers_of_one_file_do_not_meet(tmp_path, monkeypatch):
    """Two containers that share a disk, in each of which the process has the same number."""
    path, flush = tmp_path / "record.json", os.fsync
    monkeypatch.setattr(os, "getpid", lambda: 1)

    def flush_after_the_other(handle):
        monkeypatch.setattr(os, "fsync", flush)
        write_atomic(path, b"the other's")
        flush(handle)

    monkeypatch.setattr(os, "fsync", flush_after_the_other)
    write_atomic(path, b"ours")
    assert path.read_bytes() == b"ours"
    assert os.listdir(tmp_path) == ["record.json"]
