"""The official GPS and CSA models from the user's clones, for bench_training.py --official.

CSA's repository is a fork of GPS's under the same package name, so that a process can hold only one of the two.
"""

from pathlib import Path

import torch
from official_code import load_modules, stand_in, stand_in_for
from torch_geometric.data import Data
from torch_geometric.graphgym import register
from torch_geometric.graphgym.config import cfg, set_cfg

from graphgps_spse.data.base import GraphBatch

MODULES = (
    "config.gt_config",
    "config.posenc_config",
    "config.dataset_config",
    "encoder.type_dict_encoder",
    "encoder.composed_encoders",
    "head.san_graph",
    "network.gps_model",
)
CSA_MODULES = ("encoder.composed_edge_encoders",)
UNUSED = {"performer_pytorch": "SelfAttention", "graphgps.layer.bigbird_layer": "SingleBigBirdLayer"}


def build_official(clone: Path, config: str) -> torch.nn.Module:
    """Return the model of a configuration of the clone, built with the code of the clone."""
    stand_in()
    is_csa = (clone / "graphgps" / "layer" / "csa_layer.py").is_file()
    for name, contents in UNUSED.items():
        stand_in_for(name, **{contents: None})
    names = (MODULES[:4] + CSA_MODULES + MODULES[4:]) if is_csa else MODULES
    load_modules(clone, "graphgps", names)
    set_cfg(cfg)
    cfg.set_new_allowed(True)
    cfg.merge_from_file(str(clone / "configs" / config))
    kernel = cfg.posenc_RWSE.kernel
    kernel.times = list(range(*(int(bound) for bound in kernel.times_func[len("range(") : -1].split(","))))
    cfg.share.dim_in, cfg.share.dim_out = 1, 1
    if is_csa:  # CSA expects activations as objects; since PyG 2.1 they are classes
        register.act_dict["relu"] = torch.nn.ReLU()
    return register.network_dict["GPSModel"](1, 1)


def official_batch(batch: GraphBatch) -> Data:
    """Convert a batch to the form that the transforms and the collation of the official code give."""
    sizes_B = torch.tensor(batch.sizes)
    data = Data(
        x=batch.x_NF,
        edge_index=batch.edge_index_2E,
        edge_attr=batch.edge_attr_EF[:, 0],
        y=batch.y[:, 0],
        batch=torch.arange(len(sizes_B)).repeat_interleave(sizes_B),
        num_nodes=int(sizes_B.sum()),
        pestat_RWSE=batch.node["RWSE"],
    )
    if "RWSE" in batch.pair:
        data.edge_RWSE = batch.pair["RWSE"]
    return data
