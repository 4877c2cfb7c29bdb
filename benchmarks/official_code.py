"""Import of modules of an official repository from the user's clone, for bench_training.py --official.

The repositories' packages import everything they know of; here only a model's own modules are loaded. torch_scatter,
torch_sparse and opt_einsum, where they are not installed, are stood in for by the operations of PyTorch and PyG.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import coalesce
from yacs.config import CfgNode


def load_modules(clone: Path, package: str, names: Sequence[str]) -> None:
    """Import modules of a package without running the __init__ of its packages, which would import other modules."""
    for parent in (package, *sorted({f"{package}.{name.split('.')[0]}" for name in names})):
        module = ModuleType(parent)
        module.__path__ = [str(clone.joinpath(*parent.split(".")))]
        sys.modules[parent] = module
    for name in names:
        importlib.import_module(f"{package}.{name}")


def stand_in_for(name: str, **contents: Any) -> None:
    """Replace a module that is not installed, or that a model imports without using it."""
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


def fill(node: CfgNode, values: dict[str, Any]) -> None:
    """Set keys that are missing in a configuration file and that only a full import would register."""
    for key, value in values.items():
        if isinstance(value, dict):
            fill(node[key], value)
        elif key not in node:
            node[key] = value


def stand_in() -> None:
    """Replace torch_scatter, torch_sparse and opt_einsum if they are not installed."""
    for name, contents in {
        "torch_scatter": {"scatter": _scatter, "scatter_add": _scatter, "scatter_max": _scatter_max},
        "torch_sparse": {"coalesce": _coalesce},
        "opt_einsum": {"contract": _contract},
    }.items():
        if importlib.util.find_spec(name) is None:
            stand_in_for(name, **contents)


def _scatter(
    src: Tensor,
    index: Tensor,
    dim: int = 0,
    out: Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "add",
) -> Tensor:
    if reduce not in ("add", "sum") or dim != 0:
        raise NotImplementedError(f"scatter of {reduce} along {dim}")
    if out is None:
        size = int(index.max()) + 1 if dim_size is None else dim_size
        out = src.new_zeros(size, *src.shape[1:])
    return out.scatter_add_(0, index.view(-1, *[1] * (src.dim() - 1)).expand_as(src), src)


def _scatter_max(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None) -> tuple[Tensor, None]:
    out = src.new_full((dim_size or int(index.max()) + 1, *src.shape[1:]), -torch.inf)
    return out.scatter_reduce_(0, index.view(-1, *[1] * (src.dim() - 1)).expand_as(src), src, "amax"), None


def _coalesce(index: Tensor, value: Tensor, m: int, n: int, op: str = "add") -> tuple[Tensor, Tensor]:
    return coalesce(index, value, num_nodes=max(m, n), reduce=op)


def _contract(equation: str, *tensors: Tensor, backend: str) -> Tensor:
    return torch.einsum(equation, *tensors)
