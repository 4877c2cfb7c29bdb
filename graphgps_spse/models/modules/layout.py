"""The layouts of a batch, ready for torch.compile, with a check for batches that BatchNorm cannot use."""

from typing import Any

import torch

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.errors import DataError
from graphgps_spse.ops.graph_attention import NodeBlocks
from graphgps_spse.ops.not_compiled import compute_properties, not_compiled
from graphgps_spse.ops.pair_layout import PairLayout


def layout_of(batch: GraphBatch, *, training: bool, attention: Any = None) -> PairLayout:
    """Return the pair layout of a batch, for layers with this attention.

    Raises DataError for a training batch of a single node, which BatchNorm cannot use. Only a split of one node
    leads to such a batch.
    """
    layout = PairLayout(batch.sizes, batch.x_NF.device)
    if torch.compiler.is_compiling():
        _complete(layout, attention)
    if training and layout.num_nodes < 2:
        raise DataError("the training split is a single node, which BatchNorm cannot use; add graphs to the split")
    return layout


def blocks_of(sizes: tuple[int, ...], device: torch.device, attention: Any = None) -> NodeBlocks:
    """Return the nodes of graphs of these sizes in blocks, for layers with this attention."""
    blocks = NodeBlocks(sizes, device)
    if torch.compiler.is_compiling():
        _complete(blocks, attention)
    return blocks


@not_compiled
def _complete(layout: PairLayout | NodeBlocks, attention: Any) -> None:
    """Compute all that layers read, so that torch.compile finds it."""
    compute_properties(layout)
    pairs = layout.layout if isinstance(layout, NodeBlocks) else layout
    find_tiles = getattr(attention, "key_tiles", set)
    for tile in find_tiles():
        pairs.key_tiles(tile)
