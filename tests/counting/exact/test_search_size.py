"""Predicted numbers of paths against true ones."""

import networkx as nx
import numpy as np
from naive import path_counts
from small_graphs import as_graph

from graphgps_spse.counting.exact.search_size import predict_paths


def test_a_regular_search_tree_is_predicted_exactly():
    paths = predict_paths(as_graph(1.0 - np.eye(7)), 8)
    np.testing.assert_allclose(paths, [7, 42, 210, 840, 2520, 5040, 5040, 0, 0])


def test_near_the_truth_on_a_random_graph():
    graph = nx.gnm_random_graph(12, 22, seed=4)
    truth = path_counts(list(graph.edges), 12, 8).sum((1, 2))
    predicted = predict_paths(as_graph(nx.to_numpy_array(graph)), 8)
    assert predicted[0] == 12
    np.testing.assert_allclose(predicted[1:], truth, rtol=0.35)


def test_the_same_every_time():
    graph = as_graph(nx.to_numpy_array(nx.gnm_random_graph(30, 90, seed=1)))
    np.testing.assert_array_equal(predict_paths(graph, 20), predict_paths(graph, 20))


def test_more_than_float64_is_infinite():
    assert np.isinf(predict_paths(as_graph(1.0 - np.eye(200)), 180)[-1])
