"""Weights of classes in the loss, so that rare classes count as much as frequent ones."""

import logging
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from graphgps_spse.data.base import is_unknown
from graphgps_spse.errors import ConfigError

log = logging.getLogger(__name__)

OFF, BALANCED = "off", "balanced"


def parse_class_weights(text: str, classes: Sequence[str]) -> tuple[float, ...]:
    """Return the weights in `dataset.class_weights`, or none for "off" and "balanced". `classes` are their names.

    Raises ConfigError unless there is a weight for each class.
    """
    if text in (OFF, BALANCED):
        return ()
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    if len(weights) != len(classes) or not all(math.isfinite(w) and w > 0 for w in weights):
        raise ConfigError(
            f"dataset.class_weights: '{text}' must be off, balanced, or {len(classes)} positive numbers separated by "
            f"commas, one for each class in the order {', '.join(classes)}"
        )
    return weights


def fit_class_weights(y: Tensor, classes: Sequence[str], weights: Sequence[float], names: Sequence[str]) -> Tensor:
    """Return the weight of each class of each target, [T, C] float32, with mean 1 over the known rows of y [R, T].

    Without `weights`, class c of n_c among n rows weighs n / (C n_c), as in King and Zeng (2001) and scikit-learn's
    `class_weight="balanced"`; C counts the classes that occur. A class that does not occur in y weighs 1. `classes`
    are the names of the classes and `names` those of the targets, for the log.
    """
    rows = []
    for name, column in zip(names, y.cpu().T):
        known = column[~is_unknown(column, of_classes=True)].long()
        count_C = torch.bincount(known, minlength=len(classes)).double()
        weight_C = torch.tensor(weights).double() if weights else 1 / count_C.clamp_min(1)
        mean = (weight_C * count_C).sum() / count_C.sum().clamp_min(1)
        weight_C = torch.where(count_C > 0, weight_C / mean, 1.0)
        rows.append(weight_C)
        listing = ", ".join(f"{c}: {w:.4g}" for c, w in zip(classes, weight_C.tolist()))
        log.info("target %s, weights of the classes in the loss: %s", name, listing)
    return torch.stack(rows).float()
