"""Graphormer: attention biased by distances, walks or paths, degrees on nodes, and a token for each graph."""
