"""The bias of attention logits by pair encodings and edge features, the same in all layers."""

from collections.abc import Sequence

from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.encodings.base import Encoding
from graphgps_spse.models.modules.edge_encoder import edge_features
from graphgps_spse.models.modules.pair_encoder import PairChannels, PairEmbedding
from graphgps_spse.ops.pair_layout import PairLayout


class PairBias(nn.Module):
    """b_ij of each head: a map of all pair encodings, and the features of the edge j -> i where there is one."""

    def __init__(self, encodings: Sequence[Encoding], num_heads: int, *, edge_encoder: nn.Module) -> None:
        super().__init__()
        self.edge_encoder = edge_encoder
        categories = [encoding for encoding in encodings if encoding.pair_categories]
        self.embeddings = nn.ModuleList(PairEmbedding(encoding, num_heads) for encoding in categories)
        numbers = [encoding for encoding in encodings if not encoding.pair_categories]
        self.channels = PairChannels(numbers, identity=True) if numbers else None
        self.linear = None if self.channels is None else nn.Linear(self.channels.number, num_heads, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, batch: GraphBatch, layout: PairLayout) -> Tensor:
        """Return [P, H]. The features of edge u -> v enter row (v, u), whose query is the receiver, as in GRIT."""
        edge_EH = self.edge_encoder(edge_features(batch))
        bias_PH = edge_EH.new_zeros(layout.num_pairs, edge_EH.shape[1])
        if self.linear is not None and self.channels is not None:
            bias_PH = self.linear(self.channels(batch.pair))
        for embedding in self.embeddings:
            assert isinstance(embedding, PairEmbedding)
            bias_PH = bias_PH + embedding(embedding.channels(batch.pair).to(edge_EH.dtype))
        return bias_PH.index_add(0, layout.reverse_edge_rows(batch.edge_index_2E), edge_EH.to(bias_PH.dtype))
