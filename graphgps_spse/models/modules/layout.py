"""Where the pairs of a batch lie, and the one batch that no model can be trained on."""

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.errors import DataError
from graphgps_spse.ops.pair_layout import PairLayout


def layout_of(batch: GraphBatch, *, training: bool) -> PairLayout:
    """Return the pair layout of a batch.

    Raises DataError for a training batch that BatchNorm cannot use: only a split of one node leads to one.
    """
    layout = PairLayout(batch.sizes, batch.x_NF.device)
    if training and layout.num_nodes < 2:
        raise DataError("the training split is a single node, which BatchNorm cannot use; add graphs to the split")
    return layout
