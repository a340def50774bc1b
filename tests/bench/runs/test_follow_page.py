"""What a browser makes of a page that follows a run."""

import shutil

import pytest
from chameleon_bench._runs import live_page
from chameleon_bench._runs.live_page import LiveRun, PageServer

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium")
PLACE = "[window.scrollY, [...document.querySelectorAll('details')].map(one => one.open)]"


@pytest.fixture
def tab():
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as result:
        browser = result.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        tab = browser.new_page(viewport={"width": 600, "height": 300})
        tab.set_default_timeout(240_000)
        yield tab
        browser.close()


@pytest.mark.full
def test_a_page_loads_itself_again_where_the_run_has_changed_and_stays_in_its_place(
    few, tmp_path, tab, monkeypatch
):
    monkeypatch.setattr(live_page, "_LOOK_SECONDS", 0.0)
    folder = shutil.copytree(few, tmp_path / "few")
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    live = LiveRun(folder)
    with PageServer(live) as server:
        tab.goto(server.url)
        tab.wait_for_function(
            "document.getElementById('chameleon-follow').textContent.includes('has ended')"
        )
        tab.evaluate("document.querySelectorAll('details').forEach((d, i) => d.open = i % 2 == 0)")
        tab.evaluate("window.scrollTo(0, 150)")
        position = tab.evaluate(PLACE)
        assert position[0] == 150
        with tab.expect_event("load"), (folder / "events.jsonl").open("a") as log:
            log.write("{}\n")
            log.flush()
        assert tab.evaluate(PLACE) == position
        assert tab.get_attribute("#chameleon-follow", "data-version") == live.version()
    assert errors == []
