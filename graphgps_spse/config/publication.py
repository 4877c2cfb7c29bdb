"""Check whether the expected result of a configuration file (`expected:`) applies to a resolved configuration.

An override, or a file with a published file as its `base:`, changes the experiment but inherits the expected result.
Such a result is stored with the reason why it does not apply, and is not compared with the results of the run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphgps_spse.config.identity import RUNTIME_KEYS_OF_DATA, experiment_of, flatten_keys
from graphgps_spse.options import Options, option

_SHOWN = 3


class ExpectedOptions(Options, section="expected"):
    """Result of the paper or the official code for this file. It is stored in result.json and not used in training."""

    mean: float = option(0.0, "the reported mean; accuracies as fractions or in %", at_least=-1e9, at_most=1e9)
    std: float = option(0.0, "standard deviation of the reported scores over seeds", at_least=0, at_most=1e9)
    seeds: int = option(0, "number of reported seeds; 0: nothing is reported", at_least=0, at_most=1_000_000)
    source: str = option("", "where the numbers are reported")
    file: str = option("", "set by the program: the file that the numbers belong to")
    why_not: str = option("", "set by the program: why the numbers do not apply to this run")


def judge_expectation(config: dict[str, Any], published: dict[str, Any], file: Path) -> dict[str, str]:
    """Return the values of `expected.file` and `expected.why_not` for a configuration that inherits `expected`.

    `published` is the configuration in `file`, the file that sets `expected`. Values that the file itself sets, such as
    a saved configuration of a run, are kept.
    """
    if not config["expected"]["seeds"]:
        return {"file": "", "why_not": ""}
    expected = config["expected"]
    difference = compare_with_published(config, published)
    if not difference and (expected["file"] or expected["why_not"]):
        return {"file": expected["file"], "why_not": expected["why_not"]}
    return {"file": str(file), "why_not": difference}


def compare_with_published(config: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Return a text that lists the keys in which an experiment differs from the published one; "" if they agree.

    Name, seed and keys that do not affect results are ignored, except for files and folders of user data.
    """
    ours, theirs = (_experiment_with_data(dict(tree)) for tree in (config, published))
    differing = [
        f"{key} is {ours.get(key)!r} instead of {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return ", ".join(differing[:_SHOWN]) + more


def _experiment_with_data(config: dict[str, Any]) -> dict[str, Any]:
    flat = flatten_keys(config)
    return experiment_of(config) | {key: flat[key] for key in RUNTIME_KEYS_OF_DATA if key in flat}
