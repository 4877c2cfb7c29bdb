"""A molecule that kills the process that reads it, as by a fault of RDKit."""

import os
import signal

import pytest

from graphgps_spse.data import molecules

POISON = "C1CCCCC1CCCCCCO"


def spread_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every process but this one killed by POISON, and blocks be small."""
    here, read = os.getpid(), molecules.featurise

    def featurise_or_die(text: str) -> molecules.Molecule:
        if text == POISON and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(text)

    monkeypatch.setattr(molecules, "featurise", featurise_or_die)
    monkeypatch.setattr(molecules, "_BLOCK", 7)
