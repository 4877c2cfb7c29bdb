"""Fixtures of the tests of data sets."""

import pytest

from graphgps_spse.data import official_files


@pytest.fixture(autouse=True)
def miniatures_may_have_official_names(request, monkeypatch):
    """Miniatures have the names of public data sets, whose official files have other contents."""
    if request.module.__name__ != "test_official_files":
        monkeypatch.setattr(official_files, "official_files", dict)
