"""What no model here can be or be given, with the messages that say so."""

from graphgps_spse.errors import ConfigError, DataError
from graphgps_spse.ops.pair_layout import PairLayout


def check_sizes(
    *, dim: int, dim_inner: int, num_layers: int, num_heads: int, dropout: float, attn_dropout: float
) -> None:
    """Raise ConfigError for numbers that no transformer can have."""
    if dim_inner != dim:
        raise ConfigError(f"gnn.dim_inner={dim_inner} must equal gt.dim_hidden={dim}")
    if num_layers < 1 or num_heads < 1 or dim < 1 or dim % num_heads:
        raise ConfigError(
            f"gt.layers={num_layers}, gt.n_heads={num_heads}, gt.dim_hidden={dim}: at least one layer and one head, "
            "and a width that is a multiple of the heads"
        )
    for key, rate in (("gt.dropout", dropout), ("gt.attn_dropout", attn_dropout)):
        if not 0 <= rate < 1:
            raise ConfigError(f"{key}: {rate} is not a rate of at least 0 and below 1")


def check_batch(layout: PairLayout) -> None:
    """Raise DataError for a training batch that BatchNorm cannot use: only a split of one node leads to one."""
    if layout.num_nodes < 2:
        raise DataError("the training split is a single node, which BatchNorm cannot use; add graphs to the split")
