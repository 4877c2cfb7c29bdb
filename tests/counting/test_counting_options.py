"""Options of counting: bounds, types, names, and the keys of SPSE that declare the same."""

import numpy as np
import pytest

from graphgps_spse.counting import CountOptions, count_simple_paths
from graphgps_spse.encodings.spse import SPSEOptions
from graphgps_spse.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "^budget: 0 is below 1"),
        ({"budget": 2.5}, "^budget: must be of type int"),
        ({"seed": True}, "^seed: must be of type int"),
        ({"seed": -1}, "^seed: -1 is below 0"),
        ({"seed": [1]}, r"^seed: must be of type int .*not \[1\]"),
        ({"seed": 2**63}, "^seed: .* is beyond 64 bits"),
        ({"budgt": 5}, "^unknown counting option 'budgt'. Did you mean 'budget'"),
    ],
)
def test_refusals_name_the_option(options, message):
    with pytest.raises(ConfigError, match=message):
        count_simple_paths([[0], [1]], 2, 1, **options)


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan"), True])
def test_a_share_lies_above_0_and_up_to_1(share):
    with pytest.raises(ConfigError, match="^R: "):
        count_simple_paths([[0], [1]], 2, 1, method="dag", R=share)


def test_numbers_of_numpy_are_numbers():
    options = CountOptions.of(seed=np.int64(3), R=np.float32(0.5))
    assert (options.seed, options.R) == (3, 0.5) and type(options.seed) is int


def test_options_that_are_equal_but_of_another_type_are_checked_anew():
    """1 and True are equal, and only one of them is a seed."""
    count_simple_paths([[0], [1]], 2, 1, seed=1)
    with pytest.raises(ConfigError, match="^seed: must be of type int"):
        count_simple_paths([[0], [1]], 2, 1, seed=True)


def test_spse_declares_the_same_keys():
    own = {key.field: key for key in SPSEOptions.keys("")}
    assert tuple(own[key.field] for key in CountOptions.keys("")) == CountOptions.keys("")
