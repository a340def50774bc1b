"""Figures: round ticks, a colour for each name, lines and bands where their numbers are."""

from __future__ import annotations

import re

from chameleon_bench.pages import figures
from hypothesis import given
from hypothesis import strategies as st


@given(st.floats(1e-9, 1e12))
def test_ticks_are_round_numbers_within_the_axis(top):
    found = figures.ticks(top)
    assert found[0] == 0.0
    assert 3 <= len(found) <= 7
    assert found[-1] <= top * 1.000001
    assert all(re.fullmatch(r"[125]?0*\.?0*[0-9]{0,3}(e[-+]\d+)?", f"{x:g}") for x in found[1:2])


@given(st.lists(st.sampled_from("abcdefghijkl"), max_size=40))
def test_each_name_has_a_colour_of_its_own(names):
    colours = figures.colours_of(names)
    assert len(set(colours.values())) == len(colours) == len(set(names))
    assert figures.strip_figure(names).count("<rect") == len(names)


@given(st.lists(st.one_of(st.floats(1e-9, 1e9), st.just(float("inf"))), max_size=30))
def test_a_figure_has_a_dot_for_each_time_and_a_line_that_rises(speeds):
    found = [speed for speed in speeds if speed < float("inf")]
    best = [max([s for s in speeds[: n + 1] if s in found], default=-1) for n in range(len(speeds))]
    best = [float("nan") if value < 0 else value for value in best]
    drawn = figures.steps_figure(speeds, best, across="measurements", upwards="GFLOP/s")
    assert drawn.count("h0") == len(found)
    if not found:
        assert drawn == "<p class=note>Nothing has a time.</p>"
        return
    [line] = re.findall(r'<path d="(M[^"]*)" fill="none"', drawn)
    heights = [float(y) for y in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", line)]
    assert heights == sorted(heights, reverse=True)
    assert min(heights) >= 10, "nothing is above the frame"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_a_band_encloses_its_line(points):
    low, middle, high = zip(*(sorted(point) for point in points), strict=True)
    at = range(len(points))
    line = figures.Line(name="a & b", at=at, values=middle, low=low, high=high)
    drawn = figures.lines_figure([line], across="x", upwards="y", right=100.0, top=1.0)
    [band] = re.findall(r'<path d="(M[^"]*)Z" fill="#', drawn)
    corners = _corners(band)
    for x, *ends in zip(at, low, high, strict=True):
        for y in ends:
            assert (round(58 + 450 * x / 100, 1), round(192 - 182 * y, 1)) in corners
    assert "a &amp; b" in drawn


def _corners(path):
    """Where a path of horizontal and vertical strokes turns."""
    x = y = 0.0
    corners = set()
    for command, *numbers in re.findall(r"([MHV])([\d.]+)(?: ([\d.]+))?", path):
        if command == "M":
            x, y = map(float, numbers)
        elif command == "H":
            x = float(numbers[0])
        else:
            y = float(numbers[0])
        corners.add((x, y))
    return corners
