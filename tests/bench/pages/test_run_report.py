"""The page about a run shows what its folder knows, and needs nothing else."""

import csv
import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import attrs
import pytest
from chameleon_bench._pages.run_page import write_report
from chameleon_bench._pages.run_plots import plots_of
from chameleon_bench._pages.run_record import network_seconds, run_record
from chameleon_core._errors import RunFolderError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import Measurement
from chameleon_core._run_files import RunFile
from chameleon_core._task import Task
from chameleon_core.api import NetworkResult, RecordStore
from chameleon_core.plugin_api import Disturbance
from stopping import StopAfter, interrupted
from synthetic import (
    ModelOptions,
    SyntheticFrontend,
    SyntheticNetwork,
    SyntheticRunner,
    measurements_in,
)

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Text of a page, its tags in balance."""

    def __init__(self, text):
        super().__init__()
        self.words, self.open, self.seen = [], [], []
        self.feed(text)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.words.append(data)


def _page(folder):
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert not page.open
    for tag, attributes in page.seen:
        assert tag not in {"img", "iframe", "link", "object"}, "nothing else is needed"
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    return page


def _figures(page):
    result = [attributes["data-plot"] for tag, attributes in page.seen if tag == "figure"]
    return list(dict.fromkeys(result))


KERNELS = [
    {"name": "op0", "tuned": True, "calls": 3, "seconds": 0.006},
    {"name": "pool<1>", "tuned": False, "calls": 1, "seconds": 0.002},
]


class Networked(SyntheticNetwork):
    """Delivers a network, profiled."""

    more = {"kernels": KERNELS, "layout": {"layout": "NHWC", "summary": "NHWC, by dice"}}


class Hasty(SyntheticNetwork):
    """Delivers a network on a busy machine, without time for a rival."""

    more = {"ratio_interval": (1.5, 2.5), "left_out": {"openvino": NetworkResult.TIME_IS_OVER}}


ROW = ("operator", "contender", "seconds", "delivered as")


class Failing(SyntheticFrontend):
    """Delivers nothing."""

    def deliver(self, delivery):
        return {"failure": "the kernel of op0 is to blame"}


def stopped(pipeline, batches):
    interrupted(pipeline, StopAfter(batches=batches))
    return pipeline


@pytest.fixture
def delivered_by(pipeline, plugin):
    """The result of a run of two operators whose frontend is of a class."""

    def run(frontend, **more):
        plugins, model = [plugin("frontends", frontend, ModelOptions)], {"operators": [[5, 5], [4]]}
        return run_pipeline(pipeline(plugins=plugins, model={"odd": model}, **more))

    return run


def test_a_run_ends_with_its_report(pipeline):
    result = run_pipeline(pipeline(failing=20))
    page = _page(result.folder)
    assert "2 operators, 40 measurements" in page.text
    assert ": finished" in page.text
    for operator in result.operators:
        assert page.text.count(operator.name) >= 3
    assert "plain" in page.text, "a variant of a baseline"
    assert "10 batches" in page.text
    assert "By kind and reason" in page.text
    assert "as scripted" in page.text
    assert "Network" not in page.text
    for operator in result.operators:
        counts = [operator.origins.get(origin, 0) for origin in Measurement.Origin]
        assert sum(counts) == operator.measurements
        assert f"{operator.name} {' '.join(map(str, counts))}" in page.text
    assert "cardinalities" in page.text
    for name, version in result.versions.items():
        assert f"{name} {version or 'not installed'}" in page.text
    assert _figures(page) == [
        "before_and_after",
        "candidates",
        "best_by_measurement",
        "best_by_second",
        "knobs",
        "map",
        "predicted",
        "network_by_batch",
        "network_by_second",
        "scheduler",
        "spending",
    ]


def test_each_operator_has_figures_and_sentences_of_its_own(pipeline):
    folder = run_pipeline(pipeline(operators=[[1], [5, 5, 5]])).folder
    plots = {(plot.key, plot.subject): plot for plot in plots_of(run_record(folder))}
    assert ("map", "op0") not in plots, "its configurations do not differ"
    shown = re.findall(r"They keep (\d+)% of the variance", plots["map", "op1"].about)
    page = (folder / "report.html").read_text("utf-8")
    assert re.findall(r"They keep (\d+)% of the variance", page) == shown != ["0"]
    assert page.count('data-plot="candidates"') == 2
    assert page.count("<svg role=img><title>Candidates tried: time over measurement</title>") == 2


def test_columns_in_which_nothing_is_are_left_out(pipeline):
    text = _page(run_pipeline(pipeline(baselines=[])).folder).text
    assert "operator occurs first tuned GFLOP/s" in text
    assert "Untuned" not in text
    assert "Ratio" not in text
    assert "untuned vendor ratio" in _page(run_pipeline(pipeline()).folder).text


def test_the_network_is_shown_kernel_by_kernel(delivered_by):
    result = delivered_by(Networked)
    text = _page(result.folder).text
    assert "Layout: NHWC, by dice." in text
    assert "One inference takes 8 ms; torch, the fastest alternative here, takes 16 ms" in text
    assert "torch 16 ms 2.00" in text
    assert "TVM untuned 1.8 s 225.00 →" in text, "its bar would hide all the others"
    tuned = result.operators[0].tuned_seconds
    assert "8 ms in all in this profile, 75.0% of it in tuned kernels" in text
    assert "One inference without a profile took 8 ms" in text
    assert f"op0 tuned 3 6 ms 75.0% 500 {3e3 * tuned:.4g} ms" in text
    assert "pool<1> not tuned 1 2 ms 25.0% - - -" in text


def test_a_busy_machine_and_a_budget_that_is_over_are_said(delivered_by):
    text = _page(delivered_by(Hasty, budget={"wall_time": 1e-3}).folder).text
    rival = "torch, the fastest alternative here that there was time for, takes 16 ms"
    assert f"One inference takes 8 ms; {rival}, 2.00 times as long (1.50 to 2.50)." in text
    assert "The machine was busy while the networks were timed" in text
    assert re.search("Left out, since the time was over: .*openvino", text)


def test_what_disturbed_timing_is_said_with_what_was_won(pipeline, monkeypatch):
    shared = Disturbance(core_seconds=10.0, others_seconds=3.0, pairs=8, kept=5)
    monkeypatch.setattr(SyntheticRunner, "disturbance", lambda _: shared)
    assert shared.summary in _page(run_pipeline(pipeline()).folder).text


def test_what_winners_became_can_be_unfolded(pipeline):
    result = run_pipeline(pipeline())
    assert "holds neither the TensorIR" in _page(result.folder).text
    listed, other = result.operators
    folder = result.folder / RunFile.LISTINGS / Task(**listed.task).folder_name
    folder.mkdir(parents=True)
    (folder / "TensorIR.py").write_text("if a < b:\n\tpass\n")
    write_report(result.folder)
    text = (result.folder / "report.html").read_text("utf-8")
    assert "<code>TensorIR.py</code>, 2 lines</summary>" in text
    assert ">if a &lt; b:\n\tpass</pre>" in text
    page = _page(result.folder)
    assert "holds neither" not in page.text
    sentence = "Listings are kept of 1 operators, those that take most of the time"
    assert page.text.count(sentence) == 1, other.name


ALTERNATIVE = {"name": "op0 int8", "tuned": True, "calls": 1, "seconds": 0.001}


class Mixed(Networked):
    """Delivers one of two operators in another type, in one of its places."""

    more = {**Networked.more, "kernels": [*KERNELS, ALTERNATIVE]}

    def tasks(self, target):
        first, second = super().tasks(target)
        return [first, attrs.evolve(second, name="op0 int8", alternative_of="op0")]


def test_an_operator_in_another_type_has_one_row(delivered_by):
    result = delivered_by(Mixed)
    [plot] = [row for row in plots_of(run_record(result.folder)) if row.key == "before_and_after"]
    rows = list(zip(*(plot.columns[name] for name in ROW), strict=True))
    assert {operator for operator, *_ in rows} == {"op0", "pool<1>"}
    alone = 4 * result.operators[0].tuned_seconds
    delivered = "op0 (3), op0 int8 (1)"
    assert ("op0", "tuned", pytest.approx(alone), delivered) in rows
    assert ("op0", "delivered, in place", pytest.approx(0.007), delivered) in rows
    assert ("pool<1>", "delivered, in place", 0.002, "") in rows


def test_a_network_that_was_not_delivered_says_why(delivered_by):
    assert "the kernel of op0 is to blame" in _page(delivered_by(Failing).folder).text


def test_an_unfinished_run_shows_what_it_knows(pipeline):
    resolved = stopped(pipeline(), batches=3)
    assert not (resolved.output / "report.html").exists()
    write_report(resolved.output)
    page = _page(resolved.output)
    assert "12 measurements" in page.text
    assert "not finished" in page.text
    record = run_record(resolved.output)
    assert [turn.measured for turn in record.rounds] == [4, 4, 8]
    assert all(task.operator.best for task in record.tasks)


def test_the_example_of_a_failure_is_the_first_of_the_most_frequent_kind(pipeline):
    resolved = stopped(pipeline(operators=[[30, 30]], failing=60, seed=6), batches=4)
    [unfinished] = run_record(resolved.output).tasks
    [measured] = measurements_in(resolved.output).values()
    failed = [m for m in measured if not m.ok]
    kind, count = Counter(m.failure.value for m in failed).most_common(1)[0]
    assert failed[0].failure.value != kind, "else this proves nothing"
    assert unfinished.operator.failure.startswith(f"{kind}: ")
    assert unfinished.operator.failed[kind] == count


def test_the_sum_of_best_times_falls(pipeline):
    record = run_record(run_pipeline(pipeline()).folder)
    sums = network_seconds(record)
    assert sums[0] == float("inf"), "the second operator has no time yet"
    assert sums[1:] == sorted(sums[1:], reverse=True)
    searched = sum(task.operator.search_seconds for task in record.tasks)
    assert sums[-1] == pytest.approx(searched)


def test_a_damaged_event_log_and_a_missing_pipeline_are_no_obstacle(pipeline, tmp_path):
    folder = run_pipeline(pipeline()).folder
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "pipeline.yaml").unlink()
    with (copy / "events.jsonl").open("a") as log:
        log.write('{"event": "BatchMeasured", "task": {"na')
    write_report(copy)
    assert len(run_record(copy).rounds) == 10
    (copy / "events.jsonl").unlink()
    write_report(copy)
    assert "batches" not in _page(copy).text


def test_where_nothing_succeeded_the_page_says_so(pipeline):
    page = _page(run_pipeline(pipeline(failing=100, baselines=[])).folder)
    assert page.text.count("Nothing has a time.") == 2
    assert "- → -" in page.text
    assert "Nothing succeeded." in page.text
    assert "candidates" not in _figures(page)


def test_a_run_that_has_measured_nothing_yet_has_a_page(tmp_path):
    with RecordStore(tmp_path / RunFile.RECORDS) as store:
        task = Task(name="op", operator="matmul", arguments={}, target="llvm", flop=1e6)
        store.add_task(task, "made", "up")
    write_report(tmp_path)
    page = _page(tmp_path)
    assert "1 operator, 0 measurements" in page.text
    assert "Nothing has a time yet." in page.text
    assert _figures(page) == []


def test_no_run_no_report(tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        write_report(tmp_path)


def test_the_command_writes_where_it_is_told(pipeline, tmp_path, capsys):
    from chameleon_cli._main import run  # noqa: PLC0415

    folder = run_pipeline(pipeline()).folder
    file = tmp_path / "page.html"
    assert run(["report", str(folder), "-o", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(file)
    assert file.read_text() == (folder / "report.html").read_text()
    sheets = tmp_path / "sheets"
    assert run(["report", str(folder), "--plots", str(sheets), "--json"]) == 0
    named = json.loads(capsys.readouterr().out)["plots"]
    assert sorted(named) == sorted(str(item) for item in sheets.iterdir())
    rows = list(csv.DictReader((sheets / "candidates.csv").read_text().splitlines()))
    assert len(rows) == 40
    assert {row["operator"] for row in rows} == {"op0", "op1"}
    assert float(rows[0]["seconds"]) > 0
    assert {"measurement", "wall-clock seconds", "spread", "origin"} <= rows[0].keys()
    assert "times the best" not in rows[0], "that is for the screen"
    assert run(["report", str(folder), "-o", str(tmp_path / "no" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err
