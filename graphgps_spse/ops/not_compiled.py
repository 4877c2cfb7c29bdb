"""A decorator for functions that torch.compile must not look into."""

# torch.compiler.disable does the same, but imports torch's compiler where a function is decorated, which takes as long
# as importing torch. This decorator, made for torch's own modules, imports it at the first call.
from torch._compile import _disable_dynamo as not_compiled

__all__ = ["not_compiled"]
