"""The edges of a batch sorted by receiver; gathers and sums between nodes and edges.

An edge u -> v carries messages from its sender u, row 0 of the edge index, to its receiver v, row 1.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from graphgps_spse.ops.segments import gather_rows, max_rows, sum_rows


class EdgeLayout:
    """Edges in the order of their receivers; `order_E` brings features of the batch's edges into this order."""

    distance_E1: Tensor | None = None
    """Squared distance between the positional encodings of the ends of each edge, for layers that read it."""

    def __init__(self, edge_index_2E: Tensor, num_nodes: int) -> None:
        self._computed: dict[str, Tensor] = {}  # no cached_property: its lock would end a graph of torch.compile
        self.order_E = torch.argsort(edge_index_2E[1], stable=True)
        self._sender_E, self._receiver_E = edge_index_2E[:, self.order_E]
        self._by_sender_E = torch.argsort(self._sender_E, stable=True)
        self._sent_N, self._received_N = (_count(ends, num_nodes) for ends in (self._sender_E, self._receiver_E))

    def at_senders(self, x_ND: Tensor) -> Tensor:
        """Return each edge's sender row of x, [E, D]."""
        return gather_rows(x_ND, self._sender_E, self._by_sender_E, self._sent_N)

    def at_receivers(self, x_ND: Tensor) -> Tensor:
        """Return each edge's receiver row of x, [E, D]."""
        return gather_rows(x_ND, self._receiver_E, None, self._received_N)

    def sum_at_receivers(self, x_ED: Tensor) -> Tensor:
        """Return the sum over the edges that each node receives, [N, D]; zero where it receives none."""
        return sum_rows(x_ED, self._received_N)

    def max_at_receivers(self, x_ED: Tensor) -> Tensor:
        """Return the maximum over the edges that each node receives, [N, D]; minus infinity where it receives none."""
        return max_rows(x_ED, self._received_N)

    def exp_at_receivers(self, x_ED: Tensor) -> Tensor:
        """Return exp(x - m), [E, D], m the maximum over the edges of the same receiver: the terms of a softmax."""
        return (x_ED - self.at_receivers(self.max_at_receivers(x_ED.detach()))).exp()

    @property
    def received_N(self) -> Tensor:
        """The number of edges that each node receives, self-loops included, [N]."""
        return self._received_N

    @property
    def is_loop_E(self) -> Tensor:
        """Whether an edge leads from a node to itself, [E]."""
        return self._once("is_loop", lambda: self._sender_E == self._receiver_E)

    @property
    def degree_N(self) -> Tensor:
        """The number of edges that each node receives from others, [N]."""
        return self._once("degree", self._count_others)

    def _count_others(self) -> Tensor:
        loops_N = torch.zeros_like(self._received_N)
        return self._received_N - loops_N.index_add_(0, self._receiver_E, self.is_loop_E.to(loops_N.dtype))

    @property
    def symmetric_weights(self) -> tuple[Tensor, Tensor]:
        """1 / sqrt(d_u d_v) of each edge u -> v, [E, 1], zero for self-loops, and 1 / d of each node, [N, 1].

        d is one more than the number of edges that a node receives from others.
        """
        root_N1 = self._once("root", lambda: (1 + self.degree_N).float().rsqrt().unsqueeze(1))
        return self._once("weight", lambda: self._weigh(root_N1)), self._once("square", root_N1.square)

    def _weigh(self, root_N1: Tensor) -> Tensor:
        weight_E1 = root_N1[self._sender_E] * root_N1[self._receiver_E]
        return weight_E1.masked_fill(self.is_loop_E.unsqueeze(1), 0)

    def _once(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return what `compute` returned at the first call with this name."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]


def _count(index_E: Tensor, num_nodes: int) -> Tensor:
    """Return how many edges name each node, [N]. Unlike torch.bincount this does not wait for a GPU."""
    return index_E.new_zeros(num_nodes).index_add_(0, index_E, torch.ones_like(index_E))
