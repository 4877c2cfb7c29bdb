"""The official GRIT model from a user's own clone of it, for bench_training.py --official.

Its packages import everything they know of; here only the model's own modules are loaded. torch_scatter and
torch_sparse, where they are not installed, are stood in for by the PyTorch operations that PyG itself now uses.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg, set_cfg
from torch_geometric.utils import coalesce
from yacs.config import CfgNode

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.models.pairs import PairLayout

MODULES = (
    "config.gt_config",
    "config.posenc_config",
    "encoder.type_dict_encoder",
    "encoder.rrwp_encoder",
    "head.san_graph",
    "layer.grit_layer",
    "network.grit_model",
)


def build_official(clone: Path) -> torch.nn.Module:
    """Return GRIT-ZINC with the clone's code and its configs/GRIT/zinc-GRIT-RRWP.yaml."""
    _stand_in()
    _load_modules(clone)
    set_cfg(cfg)
    cfg.set_new_allowed(True)
    cfg.merge_from_file(str(clone / "configs" / "GRIT" / "zinc-GRIT-RRWP.yaml"))
    for name, values in {
        "gt": {"attn": {"deg_scaler": True, "use_bias": False}, "bn_momentum": 0.1, "bn_no_runner": False},
        "posenc_RRWP": {"spd": False},
    }.items():
        _fill(cfg[name], values)
    cfg.share.dim_in, cfg.share.dim_out = 1, 1
    networks = torch_geometric.graphgym.register.network_dict
    return networks["GritTransformer"](1, 1)


def official_batch(batch: GraphBatch, encoding: str) -> Data:
    """Return our batch as the official code's transforms and collation would have made it."""
    layout = PairLayout(batch.sizes)
    rows = batch.pair[encoding].any(dim=1).nonzero()[:, 0]
    nodes = torch.arange(layout.num_nodes).unsqueeze(1)
    sender_P, receiver_P = layout.at_senders(nodes)[:, 0], layout.at_receivers(nodes)[:, 0]
    sizes_B = torch.tensor(batch.sizes)
    degree_N = torch.bincount(batch.edge_index_2E[0], minlength=layout.num_nodes)
    return Data(
        x=batch.x_NF,
        edge_index=batch.edge_index_2E,
        edge_attr=batch.edge_attr_EF[:, 0],
        y=batch.y[:, 0],
        rrwp=batch.node[encoding],
        rrwp_index=torch.stack([sender_P[rows], receiver_P[rows]]),
        rrwp_val=batch.pair[encoding][rows],
        log_deg=batch.log_deg_N,
        deg=degree_N,
        batch=torch.arange(len(sizes_B)).repeat_interleave(sizes_B),
        num_nodes=layout.num_nodes,
    )


def _fill(node: CfgNode, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _fill(node[key], value)
        elif key not in node:
            node[key] = value


def _load_modules(clone: Path) -> None:
    """Import the model's modules below empty packages, whose own __init__ would import the rest."""
    for package in ("grit", *sorted({"grit." + name.split(".")[0] for name in MODULES})):
        module = ModuleType(package)
        module.__path__ = [str(clone.joinpath(*package.split(".")))]
        sys.modules[package] = module
    for name in MODULES:
        importlib.import_module(f"grit.{name}")


def _stand_in() -> None:
    """Provide torch_scatter and torch_sparse where they are missing."""
    for name, contents in {
        "torch_scatter": {"scatter": _scatter, "scatter_add": _scatter, "scatter_max": _scatter_max},
        "torch_sparse": {"coalesce": _coalesce},
    }.items():
        if importlib.util.find_spec(name) is None:
            module = ModuleType(name)
            vars(module).update(contents)
            sys.modules[name] = module


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
