"""How long the page of a large run takes to make and to open, and how large it is.

    python benchmarks/report_page.py --measurements 20000 --operators 1

A run folder is made through the store's own interface: times depend on knobs, some configurations
fail. The page is made once in a process that has imported what it needs, as at the end of a run,
and opened in headless Chromium, where there is one, in a window of 1280 x 1600 pixels. Seconds are
since the address was given: `text` is the browser's own first contentful paint, `load` its load
event, by which all plots are there. `touch` is the time from a click on the first plot until it is
interactive. Seconds of wall-clock depend on what else the machine does; the
processor seconds beside them, of this process and of the thread that shows the page, depend on it
less.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_bench.pages.run_page import write_report
from chameleon_core.loop.round.batch import Origin
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.run_folder import EVENTS, RECORDS
from chameleon_core.spending import Spending
from chameleon_core.store import RecordStore
from chameleon_core.task import Task

KNOBS = ("tile_rows", "tile_columns", "tile_vectors", "channel_block", "unroll", "outermost")
CHOICES = 9
BATCH = 16


def main() -> None:
    """Make a run folder and its page, open it, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=int, default=20_000)
    parser.add_argument("--operators", type=int, default=1)
    parser.add_argument("--knobs", type=int, default=13)
    parser.add_argument("--keep", type=Path, help="write the run folder here, and leave it there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "run"
        make_run(folder, options.measurements, options.operators, options.knobs)
        made = {"measurements": options.measurements, "operators": options.operators}
        print(json.dumps({**made, **page_of(folder), **opened(folder / "report.html")}, indent=1))


def make_run(folder: Path, measurements: int, operators: int, knobs: int) -> None:
    """Write the records and events of a run that has not ended."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    each = measurements // operators
    began = time.time() - measurements
    lines = [_event("RunStarted", began)]
    with RecordStore(folder / RECORDS) as store:
        store.set_fact("versions", {"numpy": np.__version__})
        for number in range(operators):
            task = Task(
                name=f"convolution_{number}",
                operator="conv2d",
                arguments={"filters": 64 + number},
                target="llvm",
                flop=2.3e8,
            )
            stored = store.add_task(task, "synthetic", "made")
            names = [f"{KNOBS[place % len(KNOBS)]}_{place}" for place in range(knobs)]
            configs = _configs(rng, each, knobs)
            with store.transaction():
                for row, config in enumerate(configs):
                    store.add(
                        stored.id,
                        row,
                        _measured(rng, config),
                        knobs={name: 2 ** int(at) for name, at in zip(names, config, strict=True)},
                        spending=Spending(search=row * 0.1, model=row * 0.05, measure=row * 0.9),
                        origin=list(Origin)[int(rng.integers(len(Origin)))],
                        score=float(rng.normal(config[1] - 2.0 * config[0])),
                        measured_at=began + number * each + row,
                    )
            for batch in range(each // BATCH):
                at = began + number * each + batch * BATCH
                lines += _batch(task.name, batch, at)
    (folder / EVENTS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _configs(rng: np.random.Generator, count: int, knobs: int) -> np.ndarray:
    """Distinct configurations, shape (count, knobs)."""
    drawn = np.unique(rng.integers(CHOICES, size=(2 * count, knobs)), axis=0)
    rng.shuffle(drawn)
    return drawn[:count]


def _measured(rng: np.random.Generator, config: np.ndarray) -> Measurement:
    places = tuple(config.tolist())
    if rng.random() < 0.05:
        kind = FailureKind.BUILD_TIMEOUT if config[0] > 4 else FailureKind.INVALID
        message = f"{int(config[0])} rows need more than {int(config[1])} registers"
        return Measurement(config=places, failure=kind, message=message, build_seconds=0.5)
    middle = 1e-3 * np.exp(0.2 * config[0] - 0.1 * config[1] + rng.normal(0.0, 0.3))
    seconds = tuple((middle * rng.normal(1.0, 0.01, 3)).tolist())
    return Measurement(config=places, seconds=seconds, build_seconds=0.5, run_seconds=0.2)


def _event(name: str, at: float, **more: Any) -> str:
    return json.dumps({"at": at, "event": name, **more})


def _batch(task: str, number: int, at: float) -> list[str]:
    summary = {"name": task, "best_seconds": 1e-3, "measured": (number + 1) * BATCH}
    return [
        _event("BatchProposed", at, task=task, round=number, score=float(number % 7)),
        _event("BatchMeasured", at + BATCH, task=summary, round=number),
    ]


def page_of(folder: Path) -> dict[str, Any]:
    """Seconds that it takes to make the page, and its bytes."""
    clock, processor = time.perf_counter(), time.process_time()
    file = write_report(folder)
    return {
        "seconds_to_make": round(time.perf_counter() - clock, 2),
        "processor_seconds_to_make": round(time.process_time() - processor, 2),
        "bytes": file.stat().st_size,
    }


_BY_THE_BROWSER = """() => ({
  text: performance.getEntriesByName("first-contentful-paint")[0].startTime,
  load: performance.getEntriesByType("navigation")[0].loadEventEnd})"""


def opened(page: Path) -> dict[str, Any]:
    """Seconds until the page is there, and until a plot is interactive that was clicked on."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return {"seconds_to_load": None, "because": "there is no chromium"}
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - optional

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_page(viewport={"width": 1280, "height": 1600})
        tab.set_default_timeout(240_000)  # a machine may be busy
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent() -> dict[str, float]:
            metrics = session.send("Performance.getMetrics")["metrics"]
            [thread] = [one["value"] for one in metrics if one["name"] == "TaskDuration"]
            return {"wall": round(time.perf_counter() - clock, 2), "processor": round(thread, 2)}

        clock = time.perf_counter()
        tab.goto(page.absolute().as_uri())
        tab.wait_for_selector("html[data-ready]")
        loaded = spent()
        clock = time.perf_counter()
        tab.click("figure[data-plot] .plot")
        tab.wait_for_selector("figure[data-drawn]")
        touched = spent()
        told = tab.evaluate(_BY_THE_BROWSER)
        browser.close()
    return {
        **{f"seconds_to_{what}": round(at / 1e3, 2) for what, at in told.items()},
        "processor_seconds_to_load": loaded["processor"],
        "seconds_to_touch": touched["wall"],
        "processor_seconds_to_touch": round(touched["processor"] - loaded["processor"], 2),
    }


if __name__ == "__main__":
    main()
