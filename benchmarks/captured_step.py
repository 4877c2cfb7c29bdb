"""A training step on one batch as a CUDA graph: what a step takes if the processor launches nothing."""

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from graphgps_spse.data.base import GraphBatch
from graphgps_spse.ops import pair_layout, sparse_pairs
from graphgps_spse.ops.graph_attention import node_blocks
from graphgps_spse.parts import Parts
from graphgps_spse.transfer import to_device

WARM_UP = 3


class CapturedStep:
    """Replays forward, backward, clipping and AdamW of a model on one batch, which is on the device.

    The arrays that a layout copies to the device are copied once and kept, as a graph cannot copy new ones. Raises
    RuntimeError if the step cannot be captured.
    """

    def __init__(self, parts: Parts, batch: GraphBatch) -> None:
        self.parts, self.batch, self.kept = parts, batch, dict[tuple[Any, ...], Tensor]()
        self.optimizer = torch.optim.AdamW(
            parts.model.parameters(), lr=1e-5, weight_decay=1e-5, fused=True, capturable=True
        )
        with ExitStack() as stack:
            for module in (pair_layout, node_blocks, sparse_pairs):
                stack.enter_context(patch.object(module, "to_device", self.to_device))
            self.error = self.capture()

    def to_device(self, array: np.ndarray, device: torch.device | str) -> Tensor:
        """Return the tensor that the first call with this array returned."""
        key = (array.shape, array.dtype.str, array.tobytes())
        if key not in self.kept:
            self.kept[key] = to_device(array, device)
        return self.kept[key]

    def capture(self) -> float:
        """Capture the step; return the relative difference of its loss from that of the same step without a graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        weights = [p.detach().clone() for p in self.tensors()]
        torch.cuda.manual_seed(0)
        expected = float(self.compute())
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            loss = self.compute()
        with torch.no_grad():
            for tensor, value in zip(self.tensors(), weights):
                tensor.copy_(value)
        torch.cuda.manual_seed(0)
        self.graph.replay()
        return abs(float(loss) - expected) / abs(expected)

    def tensors(self) -> list[Tensor]:
        """Return what a step changes in the model."""
        model: nn.Module = self.parts.model
        return [*model.parameters(), *model.buffers()]

    def compute(self) -> Tensor:
        """Take a step and return the loss."""
        loss = self.parts.task.loss(self.parts.model(self.batch), self.batch.y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parts.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def __call__(self, number: int) -> None:
        """Replay the step; the number of a batch does not matter."""
        self.graph.replay()
