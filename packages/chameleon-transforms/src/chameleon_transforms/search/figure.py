"""The front as a page: one figure in SVG, and a table; it needs nothing else."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from html import escape

from chameleon_transforms.search.front import PARAMETERS, Point

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _MARGIN = 860, 460, 70, 50, 20
_TICKS = 5
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_REJECTED, _ACCEPTED, _FRONT, _ORIGINAL = "#bbbbbb", "#56b4e9", "#d55e00", "#000000"


def page(points: Sequence[Point], front: Sequence[Point], score: str, title: str) -> str:
    """The page.

    Args:
        points: all judged networks, the original first.
        front: those that none dominates, fastest first.
        score: the one that decides.
        title: of the page.
    """
    rows = "".join(_row(place, one, points[0], score) for place, one in enumerate(front))
    head = f"<th>point</th><th>ms</th><th>faster</th><th>{escape(score)}</th><th>weights</th>"
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<style>body{font:15px sans-serif;max-width:900px;margin:2em auto;padding:0 1em}"
        "td,th{padding:.2em .8em;text-align:right;vertical-align:top}td:last-child{text-align:left}"
        "</style>"
        f"<h1>{escape(title)}</h1><p>{_summary(points, score)}</p>"
        f"{figure(points, front, score)}"
        f"<table><tr>{head}<th>transforms</th></tr>{rows}</table></html>\n"
    )


def _summary(points: Sequence[Point], score: str) -> str:
    accepted = sum(one.accepted for one in points[1:])
    more = () if score == PARAMETERS else ("number of weights",)
    objectives = ", ".join(("time", escape(score), *more))
    return (
        f"{len(points) - 1} networks were judged, and {accepted} of them are accepted by their "
        f"{escape(score)}. Orange points are the front: no other network that was "
        f"measured is better in {objectives}. Times are sums of convolutions, "
        "each tuned and measured alone; of grey and blue points some are predicted."
    )


def _row(place: int, one: Point, original: Point, score: str) -> str:
    seconds, before = one.seconds or math.nan, original.seconds or math.nan
    transforms = "; ".join(f"{name}: {label}" for name, label in one.transforms.items())
    channels = "; ".join(f"{name}: {count} channels" for name, count in one.channels.items())
    told = "; ".join(part for part in (transforms, channels) if part) or "none"
    cells = (
        str(place),
        f"{1e3 * seconds:.3g}",
        f"{before / seconds:.2f}x",
        f"{one.scores[score]:.4g}",
        f"{one.parameters:,}",
        f"<details><summary>{len(one.transforms)} layers</summary>{escape(told)}</details>",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def figure(points: Sequence[Point], front: Sequence[Point], score: str) -> str:
    """Seconds against the score, both as logarithms where all of them are positive."""
    shown = [one for one in points if math.isfinite(one.predicted_seconds)]
    shown = [one for one in shown if math.isfinite(one.scores[score])]
    across = _Axis([one.predicted_seconds * 1e3 for one in shown], _LEFT, _WIDTH - _MARGIN)
    upwards = _Axis([one.scores[score] for one in shown], _HEIGHT - _BOTTOM, _MARGIN)
    chosen = {one.config for one in front}
    marks = "".join(
        _mark(
            across.at(one.predicted_seconds * 1e3),
            upwards.at(one.scores[score]),
            _look(one, chosen, points[0]),
            f"{one.predicted_seconds * 1e3:.3g} ms, {score} {one.scores[score]:.4g}",
        )
        for one in shown
    )
    level = upwards.at(points[0].scores[score])
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' "
        f"aria-label='time against {escape(score)}' font-size='13'>"
        f"{''.join(_ticks(across, upwards))}"
        f"<line x1='{_LEFT}' x2='{_WIDTH - _MARGIN}' y1='{level:.1f}' y2='{level:.1f}' "
        "stroke='#000' stroke-dasharray='4'/>"
        f"{marks}<text x='{_WIDTH / 2}' y='{_HEIGHT - 8}' text-anchor='middle'>"
        "milliseconds of all convolutions</text>"
        f"<text transform='translate(14 {_HEIGHT / 2}) rotate(-90)' text-anchor='middle'>"
        f"{escape(score)}</text></svg>"
    )


class _Axis:
    """Values as places of pixels.

    Args:
        values: all of them.
        first: pixel of the smallest.
        last: pixel of the largest.
    """

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        self.log = min(values) > 0
        low, high = (self._scaled(one) for one in (min(values), max(values)))
        room = 0.04 * (high - low) or 1.0
        self._low, self._high = low - room, high + room
        self._first, self._last = first, last

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def at(self, value: float) -> float:
        """The pixel of a value."""
        share = (self._scaled(value) - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        """Values to write beside the axis."""
        step = (self._high - self._low) / _TICKS
        places = [self._low + (place + 0.5) * step for place in range(_TICKS)]
        return [10**one if self.log else one for one in places]


def _ticks(across: _Axis, upwards: _Axis) -> Iterator[str]:
    for value in across.ticks():
        yield (
            f"<text x='{across.at(value):.1f}' y='{_HEIGHT - _BOTTOM + 18}' text-anchor='middle'>"
            f"{value:.3g}</text>"
        )
    for value in upwards.ticks():
        y = upwards.at(value) + 4
        yield f"<text x='{_LEFT - 6}' y='{y:.1f}' text-anchor='end'>{value:.3g}</text>"


def _look(one: Point, chosen: set[tuple[int, ...]], original: Point) -> tuple[str, int]:
    """Colour and radius of a point."""
    if one.config == original.config:
        return _ORIGINAL, 6
    if one.config in chosen:
        return _FRONT, 5
    return (_ACCEPTED if one.accepted else _REJECTED), 3


def _mark(x: float, y: float, look: tuple[str, int], told: str) -> str:
    colour, radius = look
    return (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{radius}' fill='{colour}'>"
        f"<title>{escape(told)}</title></circle>"
    )


def table(points: Sequence[Point], original: Point) -> str:
    """Points as CSV, with what each costs relative to the original."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = list(original.scores)
    writer.writerow(
        ["point", "seconds", "speedup", "parameters", "multiply_adds", *scores, "transforms"]
    )
    for place, one in enumerate(points):
        seconds = one.predicted_seconds if one.seconds is None else one.seconds
        before = original.predicted_seconds if original.seconds is None else original.seconds
        told = "; ".join(f"{name}: {label}" for name, label in one.transforms.items())
        fewer = "; ".join(f"{name}: {count} channels" for name, count in one.channels.items())
        writer.writerow(
            [place, seconds, before / seconds, one.parameters, one.multiply_adds]
            + [one.scores[name] for name in scores]
            + ["; ".join(part for part in (told, fewer) if part)]
        )
    return text.getvalue()
