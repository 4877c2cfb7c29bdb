"""Fixtures shared by all tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of real data and parity files that lies beside the checkout; tests that need it skip without it."""
    shared = ROOT.parent / "shared"
    if not (shared / "data" / "README.md").is_file():
        pytest.skip(f"needs the real data and parity files in {shared}")
    return shared
