"""Sizes that nobody means are refused at once, by their key and where it stands."""

import time

import pytest

from graphgps_spse.bounds import LARGEST, check_bounds
from graphgps_spse.config import default_tree, load_config
from graphgps_spse.errors import ConfigError
from graphgps_spse.identity import flatten

ABSURD = (2**31, 10**20, 10**400)


def test_bounds_are_of_keys_and_above_their_defaults():
    tree = flatten(default_tree())
    assert not set(LARGEST) - set(tree)
    check_bounds(tree)


@pytest.mark.parametrize("number", ABSURD)
@pytest.mark.parametrize("key", sorted(key for key, most in LARGEST.items() if most < 2**31))
def test_more_than_the_bound_is_refused(key, number):
    for value in (number, [1, number]):
        with pytest.raises(ConfigError, match=rf"^{key}: .* is above [\d,]+, the limit of this key$") as error:
            check_bounds({key: value})
        assert len(str(error.value)) < 120
    check_bounds({key: LARGEST[key]})


@pytest.mark.parametrize("key", sorted(LARGEST))
def test_nothing_is_counted_below_0(key):
    check_bounds({key: 0})
    for value in (-1, [1, -(2**63) + 1]):
        with pytest.raises(ConfigError, match=rf"^{key}: -\d+ is below 0, the limit of this key$"):
            check_bounds({key: value})


def test_other_keys_have_64_bits():
    check_bounds({"optim.max_epoch": 2**63 - 1, "optim.power": 1e300, "posenc_SPSE.enable": True, "name": "x"})
    for number in (2**63, -(2**63)):
        with pytest.raises(ConfigError, match="the limit of this key"):
            check_bounds({"optim.max_epoch": number})


def test_the_place_is_named(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("gt:\n  n_heads: 2\n  layers: 2147483648\n")
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"c\.yaml:3: gt\.layers: 2147483648 is above 1,000"):
        load_config(path)
    with pytest.raises(ConfigError, match=r"override 'num_threads=1000000000': num_threads: 1000000000 is above"):
        load_config(path, ["gt.layers=2", "num_threads=1000000000"])
    assert time.monotonic() - started < 10
