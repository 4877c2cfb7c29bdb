"""Multi-head attention among the nodes of each graph. contract.py defines it; `graph_attention` is the reference."""

from graphgps_spse.ops.graph_attention.contract import GraphAttentionInput
from graphgps_spse.ops.graph_attention.node_blocks import NodeBlocks
from graphgps_spse.ops.graph_attention.reference import attention_weights, graph_attention

__all__ = ["GraphAttentionInput", "NodeBlocks", "attention_weights", "graph_attention"]
