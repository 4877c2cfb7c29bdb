"""What the log says while the parts of a run are prepared."""

import logging
import threading
from contextlib import nullcontext
from types import SimpleNamespace

from graphgps_spse import preparation


def test_the_note_about_kernels_holds_whether_they_are_compiled_or_loaded(monkeypatch, caplog):
    """A slow machine takes more than five seconds to load kernels that were compiled before."""
    noted = threading.Event()

    class AtOnce(threading.Timer):
        def __init__(self, seconds, function, words):
            super().__init__(0, lambda: (function(*words), noted.set()))

    monkeypatch.setattr(preparation.threading, "Timer", AtOnce)
    monkeypatch.setattr(preparation, "compile_kernels", lambda: noted.wait(10))
    monkeypatch.setattr(preparation, "prepare_kernels", lambda model: None)
    with caplog.at_level(logging.INFO):
        preparation.compile_all_kernels(SimpleNamespace(locating=nullcontext), None)
    (note,) = [record.getMessage() for record in caplog.records]
    assert note.startswith("loading kernels") and "once for this machine" in note
