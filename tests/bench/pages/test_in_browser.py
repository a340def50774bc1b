"""The pages in a browser: what they look like to people, and to those who use a keyboard."""

import base64
import contextlib
import csv
import io
import json
import re
import shutil
import zlib

import pytest
from chameleon_bench import hooks
from chameleon_bench._cells.execute import results
from chameleon_bench._pages import run_page, run_plots, run_record
from chameleon_bench._pages.suite_report import report_of, write_report
from synthetic import run_synthetic, synthetic_document

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="pages are looked at in chromium, which is not installed"
)

WIDTHS = (1280, 400)
SEEN = [(400, "light"), (800, "dark"), (1400, "light")]
PAPER = 718
"""Pixels between the margins of A4."""

LONG = "stages.6.residual.2.convolution 512x512 3x3 @7x7"
NAMED = """(name) => document.querySelectorAll("table:not(.whole) td:first-child")
  .forEach((one) => one.append(name))"""
CUT = """() => [...document.querySelectorAll(".scroll")]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
  .map((one) => [one.ariaLabel, getComputedStyle(one).overflowX])"""

# How many pixels of an image differ from its corner's.
INKED = """async (url) => {
  const image = await createImageBitmap(await (await fetch(url)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const pixels = new Uint32Array(
    canvas.getImageData(0, 0, image.width, image.height).data.buffer);
  return pixels.filter((one) => one !== pixels[0]).length;
}"""

# The contrast of every visible text to what is behind it, as WCAG 2 has it.
CONTRASTS = """() => {
  const parts = (text) => { const found = text.match(/[\\d.]+/g).map(Number);
    return found.length === 3 ? [...found, 1] : found; };
  const light = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].filter((one) => one.nodeType === 3)
      .map((one) => one.textContent.trim()).join("");
    if (!words || !element.checkVisibility() || element.closest("script, style")) continue;
    const style = getComputedStyle(element);
    const ends = [parts(element instanceof SVGElement ? style.fill : style.color), behind(element)]
      .map(light).sort((a, b) => b - a);
    found.push([words.slice(0, 40), (ends[0] + 0.05) / (ends[1] + 0.05)]);
  }
  return found;
}"""

COVERING = """() => [...document.querySelectorAll("figure:not([hidden]) .canvas")]
  .filter((canvas) => canvas.querySelector(".legend") &&
    canvas.querySelector(".legend").getBoundingClientRect().bottom >
      canvas.getBoundingClientRect().top + canvas._fullLayout._size.t + 1)
  .map((canvas) => canvas.ariaLabel)"""

CONTROLS = """() => {
  const all = [...document.querySelectorAll("a[href], button, select, summary, [tabindex='0']")]
    .filter((one) => one.checkVisibility());
  all.forEach((one, at) => { one.dataset.control = at; });
  return all.length;
}"""

FOCUSED = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  return [one.dataset.control || null, style.outlineStyle !== "none" && style.outlineWidth];
}"""


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip(
        "playwright.sync_api", reason="pages are looked at with playwright, which is not installed"
    )
    with driver.sync_playwright() as playwright:
        # Root has no sandbox in containers; a page of ours is no stranger.
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    document = synthetic_document(
        tmp_path_factory.mktemp("run") / "folder",
        failing=20,
        operators=[[7, 9], [5, 5, 5]],
        budget={"measurements": 40, "batch_size": 8},
    )
    return run_synthetic(document, hooks).folder


@contextlib.contextmanager
def _opened(browser, file, width, scheme="light", *, live=True):
    """A page with all its plots interactive, on which nothing went wrong."""
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    # Nothing asserts on time: a machine may be busy.
    tab.set_default_timeout(240_000)
    said = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: said.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready]")
    for figure in _figures(tab) if live else ():
        figure.query_selector(".plot").click()
        tab.wait_for_function("figure => figure.dataset.drawn", arg=figure)
    yield tab
    tab.close()
    # Blobs are what the page saves.
    loaded = [row for row in said if not row.startswith(("blob:", "data:"))]
    assert loaded == [file.as_uri()], "nothing is loaded, and nothing goes wrong"


def _figures(tab):
    figures = tab.query_selector_all("figure[data-plot]")
    return [figure for figure in figures if figure.is_visible()]


def _looks_well(tab, width):
    overflow = tab.evaluate("document.documentElement.scrollWidth")
    assert overflow <= width, "nothing makes the page wider than the screen"
    assert [(words, value) for words, value in tab.evaluate(CONTRASTS) if value < 4.5] == []
    assert tab.evaluate(COVERING) == [], "no legend lies over a plot"


def _can_be_reached(tab):
    """Every control has its turn with the tab key, and shows that it has it."""
    count = tab.evaluate(CONTROLS)
    tab.evaluate("scrollTo(0, 0)")
    seen = {}
    for _ in range(2 * count + 10):
        tab.keyboard.press("Tab")
        control, outline = tab.evaluate(FOCUSED)
        if control is not None:
            seen[int(control)] = outline
        if len(seen) == count:
            break
    assert sorted(seen) == list(range(count))
    assert all(outline and outline != "0px" for outline in seen.values())


@pytest.mark.full
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_run(browser, run_folder, width, scheme):
    with _opened(browser, run_folder / "report.html", width, scheme, live=False) as tab:
        _looks_well(tab, width)
    with _opened(browser, run_folder / "report.html", width, scheme) as tab:
        _looks_well(tab, width)
        if scheme == "light":
            _can_be_reached(tab)


@pytest.mark.full
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_of_a_suite(browser, load, run, width):
    suite = load(
        "title: Two\n"
        "pipelines: {small: {budget: {batch_size: 4}}, large: {budget: {batch_size: 16}}}\n"
        "tasks: [{model: {synthetic: {operators: [[9, 11, 7]], failing: 10}}}]\n"
        "seeds: 2\nbudget: {measurements: 64}\nrunner: synthetic-replay\n"
    )
    run(suite)
    ended = results(suite)
    [page] = [
        file
        for file in write_report(suite, ended, report_of(suite, ended))
        if file.suffix == ".html"
    ]
    with _opened(browser, page, width) as tab:
        _looks_well(tab, width)
        _can_be_reached(tab)


@pytest.mark.full
def test_plots_are_saved_and_follow_the_operator(browser, run_folder):
    with _opened(browser, run_folder / "report.html", 1280) as tab:
        for operator in ("op0", "op1"):
            figure = f"figure[data-plot=candidates][data-of={operator}]"
            tab.select_option("#subject", operator)
            assert tab.is_visible(f"[data-subject={operator}]")
            with tab.expect_download() as saved:
                tab.click(f"{figure} [data-do=csv]")
            assert saved.value.suggested_filename == f"folder-{operator}-candidates.csv"
            rows = list(csv.DictReader(io.StringIO(saved.value.path().read_text("utf-8"))))
            assert len(rows) == 40
            [plot] = [
                plot
                for plot in run_plots.plots_of(run_record.run_record(run_folder))
                if (plot.key, plot.subject) == ("candidates", operator)
            ]
            seconds = [float(row["seconds"]) if row["seconds"] else None for row in rows]
            assert seconds == [
                pytest.approx(value, rel=1e-5) if value == value else None  # noqa: PLR0124
                for value in plot.columns["seconds"]
            ]
        with tab.expect_download() as saved:
            tab.click(f"{figure} [data-do=png]")
        assert saved.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_of_many_points_those_in_sight_are_drawn(browser, tmp_path, many_measurements):
    file = run_page.write_report(many_measurements, tmp_path / "report.html")
    with _opened(browser, file, 1280) as tab:
        figure = tab.query_selector("figure[data-plot=candidates]")
        note = figure.query_selector(".drawn")
        assert 1500 < figure.query_selector(".still").inner_html().count("h0") < 2500
        assert "of 3,000 points are drawn" in note.inner_text()
        count = "figure => figure.querySelectorAll('.points path').length"
        assert 1500 < figure.evaluate(count) < 2500
        reset = figure.query_selector("[data-do=reset]")
        assert not reset.is_visible()
        figure.evaluate(
            "figure => Plotly.relayout(figure.querySelector('.canvas'), "
            "{'xaxis.range[0]': 0.5, 'xaxis.range[1]': 1000.5})"
        )
        tab.wait_for_function("told => !told.textContent", arg=note)
        assert figure.evaluate(count) == 1000
        reset.click()
        tab.wait_for_function("told => told.textContent", arg=note)
        assert not reset.is_visible()


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), SEEN)
def test_plots_are_there_without_a_script(browser, run_folder, width, scheme):
    tab = browser.new_page(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=False
    )
    tab.goto((run_folder / "report.html").as_uri())
    figures = {figure.get_attribute("data-plot"): figure for figure in _figures(tab)}
    assert len(_figures(tab)) > len(figures), "those of both operators"
    images = {key: figure.query_selector(".axes").screenshot() for key, figure in figures.items()}
    tab.close()
    counter = browser.new_page()
    for key, image in images.items():
        address = f"data:image/png;base64,{base64.b64encode(image).decode()}"
        assert counter.evaluate(INKED, address) > 2000, f"{key}: axes and words alone have fewer"
    counter.close()


@pytest.mark.full
def test_a_plot_becomes_interactive_when_it_is_touched(browser, run_folder):
    with _opened(browser, run_folder / "report.html", 1280, live=False) as tab:
        tab.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert tab.query_selector_all("figure[data-drawn], .js-plotly-plot") == []
        first, second, third, *others = _figures(tab)
        height = first.bounding_box()["height"]
        first.query_selector(".axes").click()
        second.scroll_into_view_if_needed()
        box = second.query_selector(".axes").bounding_box()
        tab.mouse.move(box["x"] + 40, box["y"] + 40)
        tab.mouse.move(box["x"] + 50, box["y"] + 50)
        third.scroll_into_view_if_needed()
        tab.evaluate("figure => figure.querySelector('[data-do=png]').focus()", third)
        tab.keyboard.press("Tab")
        for figure in (first, second, third):
            tab.wait_for_function("figure => figure.dataset.drawn", arg=figure)
            assert figure.query_selector(".canvas .main-svg").is_visible()
            assert not figure.query_selector(".still").is_visible()
        assert first.bounding_box()["height"] == height, "nothing moves"
        assert [figure.get_attribute("data-drawn") for figure in others] == [None] * len(others)
        tab.emulate_media(color_scheme="dark")
        tab.wait_for_function("() => !document.querySelector('figure[data-drawn]')")
        assert first.query_selector(".still").is_visible(), "it has the colours of the page"


def test_tables_wrap_or_scroll(browser, run_folder):
    with _opened(browser, run_folder / "report.html", 800, live=False) as tab:
        tab.evaluate(NAMED, LONG)
        assert {overflow for _, overflow in tab.evaluate(CUT)} <= {"auto"}
        assert "Times of the operators, once each" not in dict(tab.evaluate(CUT))
        tab.set_viewport_size({"width": PAPER, "height": 900})
        tab.emulate_media(media="print")
        assert tab.evaluate(CUT) == [], "nobody can scroll on paper"


@pytest.mark.full
def test_paper_has_the_still_plots(browser, run_folder):
    with _opened(browser, run_folder / "report.html", 1280, "dark", live=False) as tab:
        figures = _figures(tab)
        figures[0].query_selector(".plot").click()
        tab.wait_for_function("figure => figure.dataset.drawn", arg=figures[0])
        printed = tab.pdf(format="A4")
        tab.emulate_media(media="print", color_scheme="dark")
        assert not figures[0].query_selector(".canvas").is_visible()
        assert figures[0].query_selector(".still").is_visible()
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
    streams = re.findall(rb"stream\r?\n(.*?)endstream", printed, re.DOTALL)
    drawn = b"".join(
        zlib.decompressobj().decompress(stream) for stream in streams if stream[:1] == b"x"
    )
    # The first colour of the light style sheet: bars and points, each a fill or a stroke.
    assert len(re.findall(rb"\n0 \.447\d* \.698\d* (?:rg|RG)", drawn)) >= len(figures) - 1


@pytest.fixture
def many_measurements(tmp_path):
    from chameleon_core._measurement import Measurement, Spending  # noqa: PLC0415
    from chameleon_core._run_files import RunFile  # noqa: PLC0415
    from chameleon_core._task import Task  # noqa: PLC0415
    from chameleon_core.api import RecordStore  # noqa: PLC0415

    folder = tmp_path / "many"
    folder.mkdir()
    with RecordStore(folder / RunFile.RECORDS) as store, store.transaction():
        task = Task(name="op", operator="matmul", arguments={}, target="llvm", flop=1e6)
        stored = store.add_task(task, "made", "up")
        for row in range(3000):
            config = (row // 50, row % 50)
            result = Measurement(config=config, seconds=(1e-3 + row % 977 * 1e-6,))
            knobs = json.loads(json.dumps({"a": config[0], "b": config[1]}))
            store.add(stored.id, row, result, knobs=knobs, spending=Spending(), origin="explorer")
    return folder
