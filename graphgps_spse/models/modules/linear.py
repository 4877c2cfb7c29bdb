"""Linear maps of nodes, edges and pairs, which threads share on a CPU."""

from torch import Tensor, nn

from graphgps_spse.ops.row_linear import row_linear


class RowLinear(nn.Linear):
    """torch.nn.Linear, computed by ops/row_linear."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name in torch.nn.Linear
        """Return [R, W] from rows [R, D]."""
        return row_linear(input, self.weight, self.bias)
