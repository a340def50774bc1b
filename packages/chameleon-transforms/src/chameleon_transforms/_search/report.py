"""Writes the front of a search for transformed networks, as an HTML page and as CSV.

The front has the networks that no other network beats in time, score and size together. The page
has a plot of all networks whose score was computed.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from chameleon_bench.api import Cell, Plot, Table, logarithmic, plain_page, points, titled
from chameleon_core.api import words
from markupsafe import Markup

from chameleon_transforms._search.front import PARAMETERS, Point

_GROUPS = {
    "rejected": {"color": "--muted", "size": 5, "opacity": 0.6},
    "accepted": {"color": "--c6", "size": 6},
    "front": {"color": "--c2", "size": 9},
    "original": {"color": "--ink", "size": 17, "symbol": "star"},
}
"""The groups of networks, with the style of their points. Later groups are drawn over earlier
ones."""


def page(judged: Sequence[Point], front: Sequence[Point], score: str, title: str) -> str:
    """The HTML page of a front."""
    header = ("point", "ms", "faster", score, "weights", "changes")
    rows = []
    for index, network in enumerate(front):
        milliseconds, faster, *rest = network.cells(judged[0], score)
        rows.append([str(index), milliseconds, f"{faster}x", *rest, _details(network)])
    tables = {"The front, the fastest first": Table(header=header, rows=rows)}
    return plain_page(title, [_summary(judged, score)], [_plot(judged, front, score)], tables)


def _summary(judged: Sequence[Point], score: str) -> str:
    accepted = sum(network.accepted for network in judged[1:])
    more = () if score == PARAMETERS else ("number of weights",)
    objectives = ", ".join(("time", score, *more))
    return (
        f"{len(judged) - 1} networks were judged, and {accepted} of them are accepted by their "
        f"{score}. No other measured network is better in {objectives} than one of the front. "
        "Times are sums of convolutions, each tuned and measured alone. "
        "Some times of networks beyond the front are predicted."
    )


def _details(network: Point) -> Cell:
    details = Markup("<details><summary>{}</summary>{}</details>")
    return details.format(_counts(network), changes(network)) if changes(network) else "none"


def _counts(network: Point) -> str:
    """Numbers of transformed layers and of channel groups with fewer channels, in words."""
    layers = (
        f"{words.counted(len(network.transforms), 'layer')} transformed"
        if network.transforms
        else ""
    )
    sets = (
        f"fewer channels in {words.counted(len(network.channels), 'set')}"
        if network.channels
        else ""
    )
    return ", ".join(filter(None, [layers, sets]))


def changes(network: Point) -> str:
    """The changes of a network as text for a page; an empty string for the original."""
    transforms = [f"{name}: {label}" for name, label in network.transforms.items()]
    channels = [f"{name}: {count} channels" for name, count in network.channels.items()]
    return "; ".join([*transforms, *channels])


def _plot(judged: Sequence[Point], front: Sequence[Point], score: str) -> Plot:
    """Seconds against the score, on a logarithmic axis if all scores are positive."""
    shown = [network for network in judged if math.isfinite(network.predicted_seconds)]
    shown = [network for network in shown if math.isfinite(network.scores[score])]
    chosen = {network.config for network in front}
    groups = [_group(network, chosen, judged[0]) for network in shown]
    seconds = [network.predicted_seconds for network in shown]
    scores = [network.scores[score] for network in shown]
    columns: dict[str, Sequence[object]] = {
        "network": groups,
        "seconds": seconds,
        "score": scores,
        "weights": [network.parameters for network in shown],
        "changes": [changes(network) for network in shown],
    }
    level = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{score} of the original",
        "x": [min(seconds), max(seconds)],
        "y": [judged[0].scores[score]] * 2,
        "line": {"color": "--muted", "width": 1.5, "dash": "dash"},
        "hoverinfo": "name",
    }
    marks = [
        {
            **points("seconds", "score", list(columns), **marker),
            "name": name,
            "where": ["network", name],
        }
        for name, marker in _GROUPS.items()
        if name in groups
    ]
    return Plot(
        key="networks",
        title=f"Time against {score}",
        about="Each point is one judged network. The plot shows its changes if you point at it.",
        columns=columns,
        traces=[*marks, level],
        layout={
            "xaxis": logarithmic("time of all convolutions", seconds),
            "yaxis": titled(score, **({"type": "log"} if min(scores) > 0 else {})),
            "showlegend": True,
        },
        height=460,
    )


def _group(network: Point, chosen: set[tuple[int, ...]], original: Point) -> str:
    if network.config == original.config:
        return "original"
    if network.config in chosen:
        return "front"
    return "accepted" if network.accepted else "rejected"


def table(points: Sequence[Point], original: Point) -> str:
    """The points as CSV, with their speedups over the original."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = list(original.scores)
    writer.writerow(
        ["point", "seconds", "speedup", "parameters", "multiply_adds", *scores, "transforms"]
    )
    for index, network in enumerate(points):
        times = (network.known_seconds, network.speedup(original))
        sizes = (network.parameters, network.multiply_adds)
        scored = [network.scores[name] for name in scores]
        writer.writerow([index, *times, *sizes, *scored, changes(network)])
    return text.getvalue()
