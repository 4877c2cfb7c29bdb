"""The official configurations of GPS, CSA and GRIT for the eight data sets, their keys and values in our own words."""

from pathlib import Path
from typing import Any

import yaml


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, leaf = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = value
    return tree


def write(folder: Path, flat: dict[str, Any], name: str = "theirs.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(nested(flat), sort_keys=False))
    return path


WALKS = {"enable": True, "kernel.times_func": "range(1,17)", "model": "Linear", "raw_norm_type": "BatchNorm"}
EIGEN = {
    "enable": True,
    "eigen.laplacian_norm": "none",
    "eigen.eigvec_norm": "L2",
    "model": "DeepSet",
    "layers": 2,
    "raw_norm_type": "none",
}


def section(name: str, *options: dict[str, Any]) -> dict[str, Any]:
    return {f"posenc_{name}.{key}": value for each in options for key, value in each.items()}


def rwse(steps: int, dim: int, **more: Any) -> dict[str, Any]:
    return section("RWSE", WALKS, {"kernel.times_func": f"range(1,{steps + 1})", "dim_pe": dim}, more)


def lappe(freqs: int, dim: int, **more: Any) -> dict[str, Any]:
    return section("LapPE", EIGEN, {"eigen.max_freqs": freqs, "dim_pe": dim}, more)


DATA = {  # format, name, task_type, metric, direction, loss
    "ZINC": ("PyG-ZINC", "subset", "regression", "mae", "argmin", "l1"),
    "PATTERN": ("PyG-GNNBenchmarkDataset", "PATTERN", "classification", "accuracy-SBM", "", "weighted_cross_entropy"),
    "CLUSTER": ("PyG-GNNBenchmarkDataset", "CLUSTER", "classification", "accuracy-SBM", "", "weighted_cross_entropy"),
    "MNIST": ("PyG-GNNBenchmarkDataset", "MNIST", "classification", "accuracy", "", "cross_entropy"),
    "CIFAR10": ("PyG-GNNBenchmarkDataset", "CIFAR10", "classification", "accuracy", "", "cross_entropy"),
    "func": ("OGB", "peptides-functional", "classification_multilabel", "ap", "", "cross_entropy"),
    "struct": ("OGB", "peptides-structural", "regression", "mae", "argmin", "l1"),
    "PCQM": ("OGB", "PCQM4Mv2-full", "regression", "mae", "argmin", "l1"),
}
GATED, GINE, CSA = "CustomGatedGCN+Transformer", "GINE+Transformer", "None+CSA"
# Data set, layer type, layers, width, heads, node and edge encoder, head, layers after pooling, its encodings and
# other keys, and the number of parameters: hyperparameters of the official configurations, in our own words.
OFFICIAL = {
    "GPS-ZINC": ("ZINC", GINE, 10, 64, 4, "TypeDictNode+RWSE", "TypeDictEdge", "san_graph", 3, rwse(20, 28), 423_717),
    "GPS-PATTERN": ("PATTERN", GATED, 6, 64, 4, "LapPE", "DummyEdge", "inductive_node", 3, lappe(16, 16), 337_201),
    "GPS-CLUSTER": ("CLUSTER", GATED, 16, 48, 8, "LapPE", "DummyEdge", "inductive_node", 3, lappe(10, 16), 502_054),
    "GPS-MNIST": ("MNIST", GATED, 3, 52, 4, "LapPE", "LinearEdge", "default", 3, lappe(8, 8), 115_394),
    "GPS-CIFAR10": ("CIFAR10", GATED, 3, 52, 4, "LapPE", "LinearEdge", "default", 2, lappe(8, 8), 112_726),
    "GPS-func": ("func", GATED, 4, 96, 4, "Atom+LapPE", "Bond", "default", 1, lappe(10, 16), 504_362),
    "GPS-struct": ("struct", GATED, 4, 96, 4, "Atom+LapPE", "Bond", "default", 1, lappe(10, 16), 504_459),
    "GPS-PCQM": ("PCQM", GATED, 5, 304, 4, "Atom+RWSE", "Bond", "san_graph", 3, rwse(16, 20), 6_152_001),
    "GPS-PCQM-medium": ("PCQM", GATED, 10, 384, 16, "Atom+RWSE", "Bond", "san_graph", 3, rwse(16, 20), 19_414_641),
    "GPS-PCQM-deep": ("PCQM", GATED, 16, 256, 8, "Atom+RWSE", "Bond", "san_graph", 3, rwse(16, 20), 13_807_345),
    "CSA-ZINC": (
        "ZINC", CSA, 10, 64, 8, "TypeDictNode+RWSE", "TypeDictEdge+RWSE", "san_graph", 3,
        rwse(20, 28) | {"dataset.edge_encoder_shared": True}, 347_557,
    ),
    "CSA-ZINC, rings": (
        "ZINC", CSA, 10, 64, 8, "TypeDictNode+RWSE", "TypeDictEdge+RWSE", "san_graph", 3,
        rwse(20, 28) | {"dataset.edge_encoder_shared": True, "dataset.rings": True, "dataset.rings_max_length": 18,
                        "dataset.rings_coalesce_edges": True}, 347_685,
    ),
    "CSA-ZINC, unshared": (
        "ZINC", CSA, 10, 64, 8, "TypeDictNode+RWSE", "TypeDictEdge+RWSE", "san_graph", 3,
        rwse(20, 28) | {"dataset.rings": False, "dataset.rings_max_length": 18}, 421_157,
    ),
    "CSA-PATTERN": (
        "PATTERN", CSA, 6, 64, 4, "RWSE", "Dummy+RWSE", "inductive_node", 3,
        rwse(16, 16, precompute=True) | lappe(16, 16, enable=False), 259_153,
    ),
    "CSA-CLUSTER": (
        "CLUSTER", CSA, 16, 48, 8, "RWSE", "Dummy+RWSE", "inductive_node", 3,
        rwse(16, 16, precompute=True) | lappe(10, 16), 382_382,  # LapPE is enabled, and nothing reads it
    ),
    "CSA-MNIST": ("MNIST", CSA, 3, 52, 4, "LapPE", "LinearEdge+RWSE", "default", 3, rwse(16, 20) | lappe(8, 8), 89_654),
    "CSA-CIFAR10": (
        "CIFAR10", CSA, 3, 52, 4, "LapPE", "LinearEdge+RWSE", "default", 2,
        rwse(16, 20, precompute=False) | lappe(8, 8), 86_986,
    ),
    "CSA-PCQM": (
        "PCQM", CSA, 5, 304, 8, "Atom+RWSE", "Bond+RWSE", "san_graph", 3, rwse(16, 20, precompute=False), 4_748_585,
    ),
    "CSA-PCQM, shared": (
        "PCQM", CSA, 5, 304, 8, "Atom+RWSE", "Bond+RWSE", "san_graph", 3,
        rwse(16, 20) | {"dataset.edge_encoder_shared": True}, 4_009_865,
    ),
    "GRIT-ZINC": ("ZINC", "", 10, 64, 8, "TypeDictNode", "TypeDictEdge", "san_graph", 3, 21, 473_473),
    "GRIT-PATTERN": ("PATTERN", "", 10, 64, 8, "LinearNode", "DummyEdge", "inductive_node", 3, 21, 477_953),
    "GRIT-CLUSTER": ("CLUSTER", "", 16, 48, 8, "LinearNode", "DummyEdge", "inductive_node", 3, 32, 431_670),
    "GRIT-MNIST": ("MNIST", "", 3, 52, 4, "LinearNode", "LinearEdge", "default", 3, 18, 102_138),
    "GRIT-CIFAR10": ("CIFAR10", "", 3, 52, 4, "LinearNode", "LinearEdge", "default", 2, 18, 99_486),
    "GRIT-func": ("func", "", 4, 96, 4, "Atom", "Bond", "default", 1, 17, 443_338),
    "GRIT-struct": ("struct", "", 4, 96, 8, "Atom", "Bond", "default", 2, 24, 449_483),
    "GRIT-PCQM": ("PCQM", "", 16, 256, 8, "Atom", "Bond", "san_graph", 3, 16, 11_832_065),
}  # fmt: skip
GRIT_ONLY = {
    "accelerator": "cuda:0",
    "tensorboard_each_run": True,
    "mlflow.use": False,
    "mlflow.project": "Exp",
    "mlflow.name": "grit",
    "gt.update_e": True,
    "gt.attn.clamp": 5.0,
    "gt.attn.act": "relu",
    "gt.attn.full_attn": True,
    "gt.attn.edge_enhance": True,
    "gt.attn.O_e": True,
    "gt.attn.norm_e": True,
    "gt.attn.signed_sqrt": True,
    "gt.attn.fwl": False,
}


def official(name: str) -> dict[str, Any]:
    """The keys and values of an official configuration, flat."""
    data, layer, layers, dim, heads, node, edge, head, post, encoding, _ = OFFICIAL[name]
    data_format, variant, task_type, metric, agg, loss = DATA[data]
    flat = {
        "out_dir": "results",
        "metric_best": metric,
        **({"metric_agg": agg} if agg else {}),
        "wandb.use": True,
        "wandb.project": data,
        "dataset.format": data_format,
        "dataset.name": variant,
        "dataset.task": "graph",
        "dataset.task_type": task_type,
        "dataset.transductive": False,
        "dataset.split_mode": "standard",
        "dataset.node_encoder": True,
        "dataset.node_encoder_name": node,
        "dataset.node_encoder_bn": False,
        "dataset.edge_encoder": True,
        "dataset.edge_encoder_name": edge,
        "dataset.edge_encoder_bn": False,
        "train.mode": "custom",
        "train.batch_size": 16,
        "train.eval_period": 1,
        "train.enable_ckpt": True,
        "train.ckpt_best": True,
        "train.ckpt_clean": True,
        "train.ckpt_period": 100,
        "model.type": "GPSModel" if layer else "GritTransformer",
        "model.loss_fun": loss,
        "model.edge_decoding": "dot",
        "model.graph_pooling": "add" if data == "ZINC" else "mean",
        "gt.layer_type": layer or "GritTransformer",
        "gt.layers": layers,
        "gt.n_heads": heads,
        "gt.dim_hidden": dim,
        "gt.dropout": 0.0,
        "gt.attn_dropout": 0.5,
        "gt.layer_norm": False,
        "gt.batch_norm": True,
        "gnn.head": head,
        "gnn.layers_pre_mp": 0,
        "gnn.layers_post_mp": post,
        "gnn.dim_inner": dim,
        "gnn.batchnorm": True,
        "gnn.act": "relu",
        "gnn.dropout": 0.0,
        "gnn.agg": "mean",
        "gnn.normalize_adj": False,
        "optim.clip_grad_norm": True,
        "optim.optimizer": "adamW",
        "optim.weight_decay": "1e-5",
        "optim.base_lr": 0.001,
        "optim.max_epoch": 100,
        "optim.scheduler": "cosine_with_warmup",
        "optim.num_warmup_epochs": 5,
    }
    if data == "ZINC":
        flat |= {"dataset.node_encoder_num_types": 28 if layer else 21, "dataset.edge_encoder_num_types": 4}
    if layer:
        return flat | encoding
    key = "posenc_RWPSE" if name == "GRIT-PCQM" else "posenc_RRWP"
    options = {"enable": True, "ksteps": encoding, "add_identity": True, "add_node_attr": False, "add_inverse": False}
    return flat | GRIT_ONLY | {f"{key}.{option}": value for option, value in options.items()}
