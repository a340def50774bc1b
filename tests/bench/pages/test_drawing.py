"""Still plots: what is drawn of the description that plotly gets."""

import re

import numpy as np
import pytest
from chameleon_bench._pages.drawing import MOST, axis_of, drawing, paint
from chameleon_bench._pages.plots import Plot, at, of, stacked_seconds
from chameleon_bench._pages.run_record import Categories

RECT = re.compile(r'<rect x="([\d.]+)%" y="[\d.]+%" width="([\d.]+)%"')


def _plot(columns, traces, layout, **more):
    return Plot(
        key="k", title="A <title>", about="", columns=columns, traces=traces, layout=layout, **more
    )


def _points(columns, marker=None, layout=None, **more):
    look = {"color": "--c1", "size": 6, **(marker or {})}
    trace = {"type": "scatter", "mode": "markers", "x": of("x"), "y": of("y"), "marker": look}
    return _plot(columns, [{**trace, **more}], layout or {})


def test_a_plot_has_a_title_and_the_names_of_its_axes():
    plot = _points({"x": [1.0, 2.0], "y": [3.0, 4.0]}, layout={"xaxis": {"title": {"text": "a<b"}}})
    html = drawing(plot).html
    assert "<svg role=img><title>A &lt;title&gt;: y over a&lt;b</title>" in html
    assert html.count("class=title>a&lt;b</text>") == 1
    assert html.count("class=title>y</text>") == 1
    assert html.count("h0") == 2
    assert "keys" not in html


def test_rows_gaps_and_failures_are_told_apart():
    kinds = Categories(labels=["good", "bad"], codes=np.array([0, 0, 1, 0]))
    columns = {"x": [1, 2, 3, 4], "y": [1.0, np.nan, 3.0, 4.0], "kind": kinds}
    assert drawing(_points(columns, where=["kind", "good"])).html.count("h0") == 2
    assert drawing(_points(columns, skip=["kind", "good"])).html.count("h0") == 1
    assert drawing(_points(columns, rows=[3])).html.count("h0") == 1
    cross = drawing(_points(columns, {"symbol": "x"}, y=at(2.0)))
    assert cross.html.count('<use href="#x"') == 4


def test_of_many_points_the_lowest_are_drawn_and_a_sentence_says_so():
    values = np.concatenate([np.arange(3 * MOST, 0.0, -1.0), [0.5]])
    still = drawing(_points({"x": np.arange(len(values)), "y": values}))
    assert still.about == "2,000 of 6,001 points are drawn. The CSV has all."
    places = [int(position) for position in re.findall(r"M\d+ (\d+)h0", still.html)]
    assert len(places) == pytest.approx(MOST, rel=0.1)
    assert max(places) == max(places[-5:]), "the fastest is among them"


def test_stacked_bars_begin_where_the_others_end():
    columns = {"part": ["one", "two"], "a seconds": [1.0, 2.0], "b seconds": [3.0, np.nan]}
    html = drawing(_plot(columns, **stacked_seconds(("a", "b"), "part"))).html
    first, second, third, fourth = [tuple(map(float, ends)) for ends in RECT.findall(html)]
    assert first[0] == second[0] == 0.0
    assert second[1] == pytest.approx(2 * first[1], abs=0.02)
    assert third == (pytest.approx(first[1], abs=0.02), pytest.approx(3 * first[1], abs=0.02))
    assert fourth[1] == 0.0
    assert html.count("</svg> a</span>") == 1


@pytest.mark.parametrize(("name", "above"), [("short", False), ("a name " * 4, True)])
def test_long_names_stand_above_their_bars(name, above):
    bar = {"type": "bar", "x": of("x"), "y": of("y"), "marker": {"color": "--c1"}}
    html = drawing(_plot({"x": [1.0], "y": [name]}, [bar], {"yaxis": {"type": "category"}})).html
    assert (f"text-anchor=end>{name}<" in html) == (not above)
    assert (f"dy=.4em>{name}<" in html) == above


def test_only_the_words_in_range_are_drawn():
    names = list("abcdef")
    layout = {"type": "category", "categoryarray": names, "range": [2.5, -0.5]}
    axis = axis_of(layout, "y", names, zero=False)
    assert axis.names == ["a", "b", "c"]
    assert np.isnan(axis.places(names)).tolist() == [False] * 3 + [True] * 3
    assert axis.upwards("a") < axis.upwards("b"), "the first is at the top"


@pytest.mark.parametrize(
    ("layout", "values", "words"),
    [
        ({}, [0.0, 10.0], ["0", "2", "4", "6", "8", "10"]),
        ({"type": "log"}, [1.0, 1e9], ["1", "10", "100", "1,000", "10,000", "100,000"]),
        ({"type": "log", "ticksuffix": "s"}, [1e-6, 1e-5], ["1 µs", "2 µs", "5 µs", "10 µs"]),
        ({"type": "log", "ticksuffix": "s"}, [4.1e-3, 4.3e-3], ["4.1 ms", "4.15 ms", "4.2 ms"]),
        ({"tickformat": ".0%"}, [0.0, 1.0], ["0%", "20%", "40%", "60%", "80%", "100%"]),
        ({}, [3.0, 3.0], ["2.6", "2.8", "3", "3.2", "3.4"]),
        ({}, [np.nan], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_are_round_and_lie_on_the_axis(layout, values, words):
    axis = axis_of(layout, "x", values, zero=False)
    assert [word for _, word in axis.ticks][: len(words)] == words
    assert all(0.0 <= position <= 1.0 for position, _ in axis.ticks)


def test_a_band_lies_between_two_lines():
    steps = {"type": "scatter", "mode": "lines", "x": of("x")}
    edge = {**steps, "showlegend": False, "line": {"width": 0, "shape": "hv", "color": "--c1"}}
    band = {**edge, "y": of("high"), "fill": "tonexty", "fillcolor": "--c1/80"}
    columns = {"x": [0.0, 1.0], "low": [1.0, 2.0], "high": [2.0, 3.0]}
    html = drawing(_plot(columns, [{**edge, "y": of("low")}, band], {})).html
    assert html.count('style="fill:var(--c1)" opacity="0.5"') == 1
    assert html.count("<path") == 1, "its edges have no width"
    assert paint("--c1/80") == ("var(--c1)", pytest.approx(0.5, abs=0.01))


def test_a_scale_of_colours_says_what_its_ends_are():
    shade = {"color": of("y"), "colorscale": [[0, "--c1"], [1, "--c5"]], "cmin": 1.0, "cmax": 3.0}
    still = drawing(
        _points({"x": [1.0, 2.0], "y": [1.0, 9.0]}, shade, {"showlegend": True}, name="n")
    )
    assert "1 to 3 times the best" in still.html
    assert "color-mix(in srgb,var(--c5) 0%,var(--c1))" in still.html
    assert "color-mix(in srgb,var(--c5) 100%,var(--c1))" in still.html


def test_errors_and_points_of_a_word_stand_side_by_side():
    error = {"type": "data", "array": of("above"), "arrayminus": of("below"), "thickness": 2}
    columns = {"x": ["8", "end"], "y": [0.5, 0.6], "above": [0.1, 0.1], "below": [0.1, 0.2]}
    layout = {"scattergap": 0.5, "xaxis": {"type": "category"}}
    alone, both = (drawing(_plot(columns, traces, layout)).html for traces in _twice(error))
    assert alone.count('stroke-width="2"') == 1
    assert both.count('stroke-width="2"') == 2
    assert len(set(re.findall(r'd="M(\d+) \d+h0', both))) == 2


def _twice(error):
    marker = {"color": "--c1", "size": 9}
    trace = {"type": "scatter", "mode": "markers", "name": "n", "x": of("x"), "y": of("y")}
    trace |= {"error_y": error, "marker": marker}
    return [trace], [trace, trace]
