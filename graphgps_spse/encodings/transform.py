"""Simple path structural encoding as a torch_geometric transform, for users of other code bases."""

from typing import Any, Literal

import numpy as np
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import BaseTransform

from graphgps_spse.counting import Status, count_simple_paths
from graphgps_spse.counting.graphs import check_directed, check_edge_index
from graphgps_spse.counting.options import CountOptions
from graphgps_spse.encodings.path_counts import CountRequest, not_counted
from graphgps_spse.encodings.scaling import check_counts_fit, check_scaling, scale_counts
from graphgps_spse.encodings.spse import SPSEOptions
from graphgps_spse.errors import ConfigError, DataError


class SimplePathEncoding(BaseTransform):
    """Add f(S_1) .. f(S_K) to a graph, S_k[i, j] counting the simple paths of k edges from node i to node j.

    With pairs="all" the attribute holds all pairs of nodes, [N * N, K] float32 with (i, j) in row i * N + j, so that
    a batch concatenates the graphs' rows. With pairs="edges" it holds the pairs that `edge_index` lists, [E, K], row
    by row with it, as edge features are.
    """

    def __init__(
        self,
        max_length: int,
        alpha: float = SPSEOptions.alpha,
        beta: float = SPSEOptions.beta,
        n: int = SPSEOptions.n,
        directed: bool = SPSEOptions.directed,
        pairs: Literal["all", "edges"] = "all",
        attr_name: str = "",
        method: str = SPSEOptions.method,
        **options: Any,
    ) -> None:
        """f(x) = alpha * g^n(x) + beta with g(x) = ln(1 + x) applied n times; alpha=1, n=0 gives the counts.

        `attr_name` is "spse" if empty, or "edge_spse" for edges. `options` are the fields of counting.CountOptions that
        the method reads: seed, budget, max_work, R, D_dfs, N, .. Raises ConfigError for an option that makes no sense
        or that the method does not read, DataError for a `directed` that is neither True nor False.
        """
        SPSEOptions.check(max_length=max_length, n=n)
        check_scaling(alpha, beta, n)
        self.options = CountRequest.of(method, max_length, check_directed(directed), **options).options
        CountOptions.for_method(method, **options)
        if pairs not in ("all", "edges"):
            raise ConfigError(f"pairs: unknown value {pairs!r}. Known: all, edges")
        self.max_length, self.alpha, self.beta, self.n = max_length, alpha, beta, n
        self.directed, self.pairs, self.method = bool(directed), pairs, method
        self.attr_name = attr_name or {"all": "spse", "edges": "edge_spse"}[pairs]

    def forward(self, data: Any) -> Data:
        """Add the attribute. BaseTransform hands over a shallow copy: the graph passed in stays as it is.

        Graphs of a Batch are encoded one by one.
        Raises DataError for anything but homogeneous graphs with an `edge_index` and no weights, and where the method
        gives no count.
        """
        if isinstance(data, Batch):
            return Batch.from_data_list([self(graph) for graph in data.to_data_list()])
        if not isinstance(data, Data):
            raise DataError(f"SimplePathEncoding needs a Data or a Batch, got {type(data).__name__}")
        if not isinstance(data.edge_index, torch.Tensor):
            kind = type(data.edge_index).__name__
            raise DataError(f"SimplePathEncoding needs data.edge_index as a tensor [2, E], and this graph's is {kind}")
        if getattr(data, "edge_weight", None) is not None:
            raise DataError(
                "SimplePathEncoding counts paths, and a count has no place for weights: an edge is there or not. "
                "Remove data.edge_weight, or keep it under another name"
            )
        edges = check_edge_index(data.edge_index.detach().cpu(), "this graph")
        paths = count_simple_paths(
            edges, data.num_nodes, self.max_length, method=self.method, directed=self.directed, **self.options
        )
        if Status.NOT_COUNTED in paths.status:
            raise DataError(not_counted("this graph", paths.status.index(Status.NOT_COUNTED) + 1, self.options))
        counts = paths.counts[:, *edges] if self.pairs == "edges" else paths.counts.reshape(self.max_length, -1)
        values = scale_counts(counts.T, self.alpha, self.beta, self.n)
        with np.errstate(over="ignore"):
            encoding = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
        check_counts_fit(encoding.numpy(), self.n)
        data[self.attr_name] = encoding.to(data.edge_index.device)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}(max_length={self.max_length}, pairs={self.pairs!r})"
