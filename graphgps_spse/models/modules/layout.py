"""The pair layout of a batch, with a check for batches that BatchNorm cannot use."""

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.errors import DataError
from graphgps_spse.ops.pair_layout import PairLayout


def layout_of(batch: GraphBatch, *, training: bool) -> PairLayout:
    """Return the pair layout of a batch.

    Raises DataError for a training batch of a single node, which BatchNorm cannot use. Only a split of one node
    leads to such a batch.
    """
    layout = PairLayout(batch.sizes, batch.x_NF.device)
    if training and layout.num_nodes < 2:
        raise DataError("the training split is a single node, which BatchNorm cannot use; add graphs to the split")
    return layout
