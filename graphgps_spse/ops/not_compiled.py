"""A decorator for functions that torch.compile must not look into."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

# torch.compiler.disable imports torch's compiler where a function is decorated. This decorator, made for torch's own
# modules, imports it at the first call.
from torch._compile import _disable_dynamo

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["not_compiled"]


def not_compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function`, called as it is; code that torch.compile compiles ends a graph before the call.

    Without torch.compile, torch's compiler is not imported: that takes as long as importing torch.
    """
    skipped = _disable_dynamo(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return skipped(*args, **kwargs)
        return function(*args, **kwargs)

    return call
