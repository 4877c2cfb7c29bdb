"""A token for each graph: one more node, the first of its graph, and the pairs that it makes."""

import torch
from torch import Tensor, nn

from graphgps_spse.ops.pair_layout import PairLayout
from graphgps_spse.options import Options, option


class TokenOptions(Options, section="graphormer"):
    """Whether graphs have tokens."""

    use_graph_token: bool = option(
        True,
        "a token for each graph, which heads for graphs read in place of the nodes; also GPS with BiasedTransformer",
    )


class GraphTokens(nn.Module):
    """Learned features of the token, and a learned bias for each head of the pairs that have a token."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.token, self.bias = nn.Parameter(torch.empty(1, dim)), nn.Parameter(torch.empty(1, num_heads))
        nn.init.normal_(self.token, std=0.02)
        nn.init.normal_(self.bias, std=0.02)

    def add(self, x_ND: Tensor, bias_PH: Tensor, layout: PairLayout) -> tuple[Tensor, Tensor, PairLayout]:
        """Return nodes, biases and layout of the graphs with their tokens."""
        wider = PairLayout(tuple(size + 1 for size in layout.sizes), layout.device)
        place_N = node_places(layout)
        rows_P = wider.edge_rows(place_N[layout.edges_of(torch.arange(layout.num_pairs, device=layout.device))])
        x_MD = self.token.to(x_ND.dtype).expand(wider.num_nodes, -1).index_copy(0, place_N, x_ND)
        bias_QH = self.bias.to(bias_PH.dtype).expand(wider.num_pairs, -1).index_copy(0, rows_P, bias_PH)
        return x_MD, bias_QH, wider


def node_places(layout: PairLayout) -> Tensor:
    """Return the row of each node among nodes and tokens, [N]."""
    number_B = torch.arange(1, layout.num_graphs + 1, device=layout.device).unsqueeze(1)
    return torch.arange(layout.num_nodes, device=layout.device) + layout.at_nodes(number_B).squeeze(1)


def token_places(layout: PairLayout) -> Tensor:
    """Return the row of each token among nodes and tokens, [B]."""
    size_B = layout.sizes_B + 1
    return size_B.cumsum(0) - size_B
