"""Picture and page of the shares that nodes, pairs and lengths have in a prediction."""

from collections.abc import Mapping
from html import escape

import numpy as np

from graphgps_spse.drawing.graph import DrawnGraph
from graphgps_spse.drawing.page import PAGE_STYLE, html_page
from graphgps_spse.drawing.svg import FONT, as_svg, draw_graph, pixel_positions

SHOWN_PAIRS = 8
"""Pairs that a picture shows: those of the largest shares."""


def explanation_svg(
    graph: DrawnGraph, nodes: np.ndarray, pairs: Mapping[tuple[int, int], float], channels: Mapping[str, float]
) -> str:
    """Return an SVG of a graph: circles for the shares of `nodes` [n], lines for the largest of `pairs`, and bars for
    `channels`. Red raises the prediction and blue lowers it.
    """
    _, width, height = pixel_positions(graph)
    bars, bars_width, bars_height = _draw_bars(channels)
    drawn = _draw_shares(graph, nodes, pairs)
    return as_svg([(0, 0, drawn), (width + 20, 10, bars)], width + 20 + bars_width, max(height, bars_height + 20))


def explanation_page(
    graph: DrawnGraph,
    nodes: np.ndarray,
    pairs: Mapping[tuple[int, int], float],
    channels: Mapping[str, float],
    heading: str,
) -> str:
    """Return a self-contained HTML page; arguments are those of `explanation_svg`. `heading` states the prediction."""
    _, width, height = pixel_positions(graph)
    bars, bars_width, bars_height = _draw_bars(channels)
    rows = "".join(
        f"<tr><td>{_name(graph, i)}</td><td>{_name(graph, j)}</td><td>{value:+.4g}</td></tr>"
        for (i, j), value in list(pairs.items())[:20]
    )
    body = f"""
<h1>{escape(graph.title)}</h1>
<p>{escape(heading)}</p>
<p>Shares are gradient times input of the encodings of pairs: red raises the prediction, blue lowers it. They are exact
for a linear model and a first approximation for others. Lines join the {SHOWN_PAIRS} pairs of the largest shares.</p>
<div class="row">
<figure><figcaption>atoms and pairs</figcaption><svg viewBox="0 0 {width:.0f} {height:.0f}"
style="max-width:{1.6 * width:.0f}px">{_draw_shares(graph, nodes, pairs)}</svg></figure>
<figure><figcaption>length of paths</figcaption><svg viewBox="0 0 {bars_width:.0f} {bars_height:.0f}"
style="max-width:{1.3 * bars_width:.0f}px">{bars}</svg></figure></div>
<h2>Pairs of the largest shares</h2>
<table><tr><th>from</th><th>to</th><th>share</th></tr>{rows}</table>"""
    return html_page(f"Explanation of {graph.title}", body, PAGE_STYLE)


def _draw_shares(graph: DrawnGraph, nodes: np.ndarray, pairs: Mapping[tuple[int, int], float]) -> str:
    shown = {pair: value for pair, value in list(pairs.items())[:SHOWN_PAIRS] if pair[0] != pair[1]}
    return draw_graph(graph, node_values=_scaled(dict(enumerate(nodes.tolist()))), pair_values=_scaled(shown))


def _scaled(values: Mapping) -> dict:
    """Return values divided by the largest absolute one."""
    largest = max(map(abs, values.values()), default=0.0) or 1.0
    return {key: value / largest for key, value in values.items()}


def _draw_bars(channels: Mapping[str, float]) -> tuple[str, float, float]:
    """Return horizontal bars with names and values, and their width and height."""
    parts, half = [], 90.0
    for number, (name, value) in enumerate(_scaled(channels).items()):
        y, length = 18.0 * number, abs(value) * half
        x = 80 + half - (length if value < 0 else 0)
        colour = "#d55e00" if value >= 0 else "#0072b2"
        parts.append(f'<text x="74" y="{y + 13}" font-size="11" text-anchor="end" {FONT}>{escape(name)}</text>')
        parts.append(f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="12" fill="{colour}"/>')
        parts.append(f'<text x="270" y="{y + 13}" font-size="11" {FONT}>{channels[name]:+.3g}</text>')
    height = 18.0 * len(channels)
    parts.append(f'<line x1="{80 + half}" y1="0" x2="{80 + half}" y2="{height}" stroke="#333"/>')
    return "".join(parts), 350.0, height


def _name(graph: DrawnGraph, node: int) -> str:
    return f"{escape(graph.labels[node] or 'C')} {node}"
