"""Molecules of a split as flat arrays: conversion by several processes, selection, and the data set of a split."""

from collections.abc import Sequence

import numpy as np
import torch

from graphgps_spse.data.base import DatasetSpec, GraphDataset
from graphgps_spse.data.molecules import MoleculeBlock, featurise_block, featurise_many, useful_workers


def featurise_rows(smiles: Sequence[str], num_workers: int) -> MoleculeBlock:
    """Return the graphs of a list of SMILES as a single block, computed by up to `num_workers` processes."""
    num_workers = useful_workers(len(smiles), num_workers)
    blocks = list(featurise_many(smiles, num_workers=num_workers)) or [featurise_block([])]
    arrays = {
        name: np.concatenate([getattr(block, name) for block in blocks], axis=-1 if name == "edge_index" else 0)
        for name in MoleculeBlock._fields[:-1]
    }
    return MoleculeBlock(**arrays, bad=[row for block in blocks for row in block.bad])


def select_molecules(block: MoleculeBlock, graphs: Sequence[int]) -> MoleculeBlock:
    """Return the given graphs of a block, in ascending order."""
    chosen_G = np.zeros(len(block.sizes), dtype=bool)
    chosen_G[list(graphs)] = True
    nodes, edges = np.repeat(chosen_G, block.sizes), np.repeat(chosen_G, block.num_edges)
    return MoleculeBlock(
        rows=block.rows[chosen_G],
        sizes=block.sizes[chosen_G],
        num_edges=block.num_edges[chosen_G],
        x=block.x[nodes],
        edge_index=block.edge_index[:, edges],
        edge_attr=block.edge_attr[edges],
        bad=[],
    )


def molecule_split(
    block: MoleculeBlock, targets_GT: torch.Tensor, *, spec: DatasetSpec, split: str, source: str = ""
) -> GraphDataset:
    """Return a split of molecules and their targets [G, T] float32, where NaN stands for unknown."""
    return GraphDataset(
        name=spec.name,
        split=split,
        x_NF=torch.from_numpy(block.x),
        edge_index_2E=torch.from_numpy(block.edge_index),
        edge_attr_EF=torch.from_numpy(block.edge_attr),
        y=targets_GT,
        node_ptr=torch.from_numpy(np.concatenate([[0], block.sizes.cumsum()])),
        edge_ptr=torch.from_numpy(np.concatenate([[0], block.num_edges.cumsum()])),
        may_miss_targets=spec.may_miss_targets,
        source=source,
    )
