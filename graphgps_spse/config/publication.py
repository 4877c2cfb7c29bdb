"""What a configuration file expects (`expected:`) is of that configuration; of any other one it is said why it is not.

A file that has a published one as its `base:`, or an override, changes what is trained with a few words and inherits
the numbers that were reported for something else. They are kept in the record, and not compared with its results.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphgps_spse.config.identity import RUNTIME_KEYS_OF_DATA, experiment_of, flatten
from graphgps_spse.options import Options, option

_SHOWN = 3


class ExpectedOptions(Options, section="expected"):
    """What the paper or the official code reports for this file; kept in result.json and never used in training."""

    mean: float = option(0.0, "the reported mean, as printed: accuracies in %")
    std: float = option(0.0, "standard deviation of the reported scores over seeds", at_least=0)
    seeds: int = option(0, "number of reported seeds; 0: nothing is reported", at_least=0)
    source: str = option("", "where the numbers are reported")
    file: str = option("", "set by the program: the file that the numbers belong to")
    why_not: str = option("", "set by the program: why the numbers do not apply to this run")


def judge_expectation(config: dict[str, Any], published: dict[str, Any], file: Path) -> dict[str, str]:
    """Return `file` and `why_not` of the section `expected` of a nested configuration that took it from `file`.

    A reason that the file gives itself, as the saved configuration of a run does, stays.
    """
    if not config["expected"]["seeds"]:
        return {"file": "", "why_not": ""}
    said = config["expected"]
    difference = compare_with_published(config, published)
    if not difference and (said["file"] or said["why_not"]):
        return {"file": said["file"], "why_not": said["why_not"]}
    return {"file": str(file), "why_not": difference}


def compare_with_published(config: Mapping[str, Any], published: Mapping[str, Any]) -> str:
    """Return which keys of a nested configuration differ from the published one, in words; "" where none counts.

    Keys that only say how a run is carried out do not count, nor do name and seed; files and folders of data do.
    """
    ours, theirs = (_what_is_trained(dict(tree)) for tree in (config, published))
    differing = [
        f"{key} is {ours.get(key)!r} here and {theirs.get(key)!r} there"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return ", ".join(differing[:_SHOWN]) + more


def _what_is_trained(config: dict[str, Any]) -> dict[str, Any]:
    flat = flatten(config)
    return experiment_of(config) | {key: flat[key] for key in RUNTIME_KEYS_OF_DATA if key in flat}
