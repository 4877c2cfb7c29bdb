"""What torch.compile must not look into, and what is computed before torch.compile looks into the layers."""

from collections.abc import Callable
from functools import cached_property

# torch.compiler.disable does the same, but imports torch's compiler where a function is decorated, which takes as long
# as importing torch. This decorator, made for torch's own modules, imports it at the first call.
from torch._compile import _disable_dynamo as not_compiled

__all__ = ["compute_properties", "not_compiled"]


def compute_properties(layout: object, wanted: Callable[[str], bool]) -> None:
    """Compute those cached properties of a layout whose names are wanted.

    A layer that is the first to read such a property could not be compiled as a whole, nor could the other layers,
    which share its code.
    """
    for name, member in vars(type(layout)).items():
        if isinstance(member, cached_property) and wanted(name):
            getattr(layout, name)
