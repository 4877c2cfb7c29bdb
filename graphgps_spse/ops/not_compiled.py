"""What torch.compile must not look into, and what has to be computed before it does."""

from functools import cached_property

# torch.compiler.disable does the same, but imports torch's compiler where a function is decorated, which takes as long
# as importing torch. This decorator, made for torch's own modules, imports it at the first call.
from torch._compile import _disable_dynamo as not_compiled

__all__ = ["compute_properties", "not_compiled"]


@not_compiled
def compute_properties(layout: object) -> None:
    """Compute all cached properties of a layout, and of the layouts among them.

    Call this in front of the layers of a model that is being compiled. A layer that is the first to read such a
    property could not be compiled as a whole, nor could the other layers, which share its code.
    """
    for name, member in vars(type(layout)).items():
        if isinstance(member, cached_property):
            compute_properties(getattr(layout, name))
