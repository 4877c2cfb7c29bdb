"""The official GRIT model from the user's clone, for bench_training.py --official."""

from pathlib import Path

import torch
import torch_geometric
from official_code import fill, load_modules, stand_in
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg, set_cfg

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.ops.pair_layout import PairLayout

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
    stand_in()
    load_modules(clone, "grit", MODULES)
    set_cfg(cfg)
    cfg.set_new_allowed(True)
    cfg.merge_from_file(str(clone / "configs" / "GRIT" / "zinc-GRIT-RRWP.yaml"))
    for name, values in {
        "gt": {"attn": {"deg_scaler": True, "use_bias": False}, "bn_momentum": 0.1, "bn_no_runner": False},
        "posenc_RRWP": {"spd": False},
    }.items():
        fill(cfg[name], values)
    cfg.share.dim_in, cfg.share.dim_out = 1, 1
    networks = torch_geometric.graphgym.register.network_dict
    return networks["GritTransformer"](1, 1)


def official_batch(batch: GraphBatch) -> Data:
    """Convert a batch to the form that the transforms and the collation of the official code give."""
    encoding = "RRWP"
    layout = PairLayout(batch.sizes)
    rows = batch.pair[encoding].any(dim=1).nonzero()[:, 0]
    nodes = torch.arange(layout.num_nodes).unsqueeze(1)
    sender_P, receiver_P = layout.at_keys(nodes)[:, 0], layout.at_queries(nodes)[:, 0]
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
