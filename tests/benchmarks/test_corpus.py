"""The corpus: its plan, its outcomes, what is run again, and its table; no network is run."""

import ast
import json
import os
import time
from pathlib import Path

import attrs
import corpus_plan as plans
import corpus_process
import corpus_provenance
import corpus_runs as runs
import corpus_table as tables
import pytest
from chameleon_core._errors import ConfigError
from programs import completed

from .conftest import BENCHMARKS, SMALL, ended

RESULT = {
    "seconds": 30.0,
    "network": {
        "folder": "/run/network",
        "latency_seconds": 0.002,
        "untuned_seconds": 0.1,
        "delivered_seconds": 25.0,
        "rivals": {"torch": 0.004, "onnxruntime": 0.003},
    },
}


ORIGIN = {"commit": "abc", "processor": "Some CPU", "cores": 2, "packages": {"torch": "2"}}


@pytest.fixture(name="bench")
def _bench(file, monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "describe", lambda: {"cpu": {"model": ORIGIN["processor"]}})
    return runs.Bench(plan=plans.read_plan(file), folder=tmp_path / "out", code="code")


# The plan


def functions_of(module):
    tree = ast.parse((BENCHMARKS / "corpus_networks" / f"{module}.py").read_text(encoding="utf-8"))
    return {row.name for row in tree.body if isinstance(row, ast.FunctionDef)}


def test_every_network_of_the_corpus_is_written():
    plan = plans.read_plan(BENCHMARKS / "corpus.yaml")
    named = {tuple(case.network.split(":")) for case in plan.cases}
    modules = {module: functions_of(module) for module, _ in named}
    assert [row for row in named if row[1] not in modules[row[0]]] == []
    written = {
        (module, name)
        for module, functions in modules.items()
        for name in functions
        if not name.startswith("_")
    }
    assert written == named
    assert len(named) >= 40
    assert {case.form for case in plan.cases} == {"torch", "onnx"}


def test_chance_alone_holds_networks_out():
    plan = plans.read_plan(BENCHMARKS / "corpus.yaml")
    names = {case.network.partition(":")[2] for case in plan.cases}
    assert set(plan.seen) <= names
    for case in plan.cases:
        seen = case.network.partition(":")[2] in plan.seen
        assert case.held_out == (plans.drawn(case.network) and not seen), case.name
    held_out = {case.network for case in plan.cases if case.held_out}
    assert 0.2 <= len(held_out) / len(names) <= 0.35


def test_networks_of_much_work_get_more_time(file):
    plan = plans.read_plan(file)
    row, two, _ = plan.cases
    assert plan.budget_of(row) == {"measurements": 8, "wall_time": "10s", "scope": "network"}
    assert plan.budget_of(two)["wall_time"] == "30s"
    assert plan.deadline_seconds == 60.0


def test_a_limit_that_is_none_is_left_out(file):
    plan = plans.read_plan(file)
    plan = attrs.evolve(plan, budget=plans.Spending(measurements=3))
    assert plan.budget_of(plan.cases[1]) == {"measurements": 3, "scope": "network"}


def test_cases_are_chosen_by_name_or_by_whether_they_are_held_out(file):
    plan = plans.read_plan(file)

    def names(**how):
        return [case.name for case in plans.chosen(plan, **how)]

    assert names() == ["one", "one_onnx"]
    assert names(held_out=True) == ["two"]
    assert names(every=True) == ["one", "two", "one_onnx"]
    assert names(only=["two"]) == ["two"]
    with pytest.raises(ConfigError, match="no 'on'"):
        names(only=["on"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("name: two", "twice"),
        ("name: three, colour: red", "colour"),
        ("name: three, form: tflite", "form"),
    ],
)
def test_a_mistake_in_the_plan_is_a_sentence(file, wrong, told):
    case = f'  - {{{wrong}, network: "a:b", source: transformers, family: f, task: t, gflop: 1}}\n'
    file.write_text(SMALL + case, encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        plans.read_plan(file)


# Outcomes


def test_what_came_of_a_run():
    def kind(measurements=0, **how):
        return runs.judged(ended(**how), measurements)["outcome"]

    failed = {"seconds": 1.0, "network": {"failure": "the network is not delivered: it is off"}}
    crashed = {
        "seconds": 1.0,
        "network": {"failure": "frontend 'torch' failed to deliver the network: InternalError: x"},
    }
    assert kind(out=json.dumps(RESULT)) == runs.DELIVERED
    assert kind(code=5, out=json.dumps(RESULT)) == runs.DELIVERED
    assert kind(code=1, out=json.dumps(failed)) == runs.FAILED
    assert kind(code=1, out=json.dumps(crashed)) == runs.INTERNAL
    assert kind(code=1, out=json.dumps({"seconds": 1.0, "network": {}})) == runs.FAILED
    assert kind(code=2, err="error: no such operator\nhint: write another\n") == runs.REFUSED
    assert kind(9, code=2, err="error: no such operator\n") == runs.REFUSED_LATE
    assert kind(code=3, err="error: frontend 'x' failed to name the tasks: E: e") == runs.INTERNAL
    assert kind(code=70, err="internal error: KeyError: 1\nhint: report it\n") == runs.INTERNAL
    assert kind(code=-11, err="Segmentation fault\n") == runs.INTERNAL
    assert kind(code=None) == runs.DEADLINE


def test_a_refusal_is_kept_in_its_own_words():
    err = "12:00 reading\nerror: TVM cannot read it\nhint: it is about node 3\nhint: or 4\n"
    outcome = runs.judged(ended(code=2, err=err), 0)
    assert outcome["sentence"] == "TVM cannot read it hint: it is about node 3 hint: or 4"
    outcome = runs.judged(ended(code=70, err="internal error: KeyError: 1\nhint: report\n"), 0)
    assert outcome["sentence"] == "internal error: KeyError: 1"


def test_a_folder_without_a_store_has_no_measurements(tmp_path):
    assert runs.measured(tmp_path) == 0


# Running


@pytest.fixture(name="commands")
def _commands(monkeypatch):
    """The commands that would have been run; each answers with a delivered network."""
    arguments = []

    def fake(command, environment, limit):
        arguments.append((list(command), environment, limit))
        return ended(out=json.dumps(RESULT))

    monkeypatch.setattr(runs, "in_time", fake)
    monkeypatch.setattr(runs, "origin", lambda _: ORIGIN)
    return arguments


def test_an_outcome_is_kept_and_not_made_again(bench, commands):
    case = bench.plan.cases[0]
    assert runs.finished(bench, case) is None
    outcome = runs.run(bench, case)
    assert outcome["outcome"] == runs.DELIVERED
    assert runs.finished(bench, case) == outcome
    ((command, environment, limit),) = commands
    assert command[1:4] == ["-m", "chameleon_cli", "run"]
    assert command[-2:] == ["--json", "--fresh"]
    assert str(BENCHMARKS) in environment["PYTHONPATH"]
    assert limit == 60.0


def test_other_code_and_another_budget_make_it_again(bench, commands):
    case = bench.plan.cases[0]
    runs.run(bench, case)
    later = attrs.evolve(bench, code="other")
    plan = attrs.evolve(bench.plan, budget=plans.Spending(measurements=9))
    longer = attrs.evolve(bench, plan=plan)
    for other in (later, longer):
        assert runs.finished(other, case) is None
        assert runs.finished(other, case, keep=True) is not None


def test_what_was_interrupted_goes_on_and_what_changed_begins_again(bench, commands, monkeypatch):
    case = bench.plan.cases[0]

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(runs, "in_time", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runs.run(bench, case)
    assert runs.finished(bench, case) is None
    runs.run(bench, case)
    runs.run(attrs.evolve(bench, code="other"), case)
    assert ["--fresh" in command for command, _, _ in commands] == [False, True]


def test_a_case_without_its_library_is_left_out_until_it_is_there(
    bench, commands, monkeypatch, tmp_path
):
    case = attrs.evolve(bench.plan.cases[0], source="torchvision")
    monkeypatch.setattr(runs.importlib.util, "find_spec", lambda _: None)
    assert runs.run(bench, case)["outcome"] == runs.MISSING
    assert runs.finished(bench, case) is None
    tmp_path.joinpath("lib", "torchvision").mkdir(parents=True)
    beside = attrs.evolve(bench, libraries=tmp_path / "lib")
    assert runs.run(beside, case)["outcome"] == runs.DELIVERED
    ((_, environment, _),) = commands
    assert str(tmp_path / "lib") in environment["PYTHONPATH"]


def test_an_onnx_case_is_exported_first(bench, commands):
    case = bench.plan.cases[2]
    runs.run(bench, case)
    export, _ = (command for command, _, _ in commands)
    assert export[1:4] == ["-m", "corpus_networks.export", "some:one"]
    assert bench.pipeline(case)["model"] == {"onnx": export[-1]}


def test_a_network_that_torch_does_not_export_is_no_fault_of_the_tuner(bench, monkeypatch):
    monkeypatch.setattr(runs, "in_time", lambda *_: ended(code=1, err="Trace\nValueError: no\n"))
    monkeypatch.setattr(runs, "origin", lambda _: {})
    outcome = runs.run(bench, bench.plan.cases[2])
    assert outcome["outcome"] == runs.NOT_EXPORTED
    assert "ValueError: no" in outcome["sentence"]


@pytest.mark.full
def test_the_deadline_ends_a_command_and_all_it_started(tmp_path):
    note = tmp_path / "child"
    program = f"sleep 600 & echo $! > {note}; wait"
    assert corpus_process.in_time(["/bin/sh", "-c", program], os.environ, 5.0).code is None
    state = Path("/proc", note.read_text().strip(), "stat")
    # It has been sent the signal; on a busy machine it dies a moment later.
    ends = time.monotonic() + 240.0
    while _alive(state) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not _alive(state)


def _alive(state):
    try:
        return state.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_code_is_known_by_its_files_and_their_changes(tmp_path):

    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        completed(["git", "-C", tmp_path, *who, *words])

    for folder in ("packages", "benchmarks/corpus_networks", "docs"):
        tmp_path.joinpath(folder).mkdir(parents=True)
        tmp_path.joinpath(folder, "file").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    before = corpus_provenance.code_of(tmp_path)
    tmp_path.joinpath("docs", "file").write_text("2")
    git("commit", "-am", "two")
    assert corpus_provenance.code_of(tmp_path) == before
    tmp_path.joinpath("packages", "file").write_text("2")
    assert corpus_provenance.code_of(tmp_path) != before
    assert corpus_provenance.commit_of(tmp_path).endswith("-dirty")


# The table


def outcome(name, kind="delivered", seconds=None, rivals=None, **more):
    case = {
        "name": name,
        "form": "torch",
        "family": "cnn",
        "gflop": 1.0,
        "held_out": more.pop("held_out", False),
    }
    network = None
    if seconds is not None:
        network = {"latency_seconds": seconds, "rivals": rivals or {}, "delivered_seconds": 70.4}
    return {
        "case": case,
        "outcome": kind,
        "sentence": more.pop("sentence", None),
        "network": network,
        "measurements": 3,
        "seconds": 12.0,
        "budget": {"measurements": 8, "wall_time": "10s", "scope": "network"},
        **ORIGIN,
        "packages": {"torch": "2", "openvino": None},
    }


OUTCOMES = [
    outcome("quick", seconds=0.001, rivals={"torch": 0.008, "openvino": 0.004}),
    outcome("slow", seconds=0.002, rivals={"torch": 0.009, "onnxruntime": 0.001}, held_out=True),
    outcome("odd", "refused", sentence="there is a | b\n in it"),
    outcome("gone", "left out", sentence="torchvision is not installed"),
]


def test_the_slowest_come_first():
    page = tables.page("Networks", OUTCOMES)
    rows = [line for line in page.splitlines() if line.startswith(("| slow", "| quick"))]
    assert [row.split(" | ")[0] for row in rows] == ["| slow *", "| quick"]
    assert "| 2 | 9 | - | 1 | - | 0.50 |" in rows[0]
    assert "| 70 | 3 |" in rows[0]


def test_the_page_says_what_it_holds_for():
    page = tables.page("Networks", OUTCOMES)
    assert "2 cores of Some CPU" in page
    assert "Commit abc" in page
    assert "8 measurements, 10s of tuning" in page
    assert "torch 2." in page
    assert "openvino 2" not in page


def test_summaries_of_all_of_the_held_out_and_of_families():
    page = tables.page("Networks", OUTCOMES)
    rows = {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("| ")}
    assert rows["| all"] == "| all | 3 | 2 (67%) | 1 | 0 | 0 | 1.41 | 0.50 | 1 |"
    assert rows["| held out"] == "| held out | 1 | 1 (100%) | 0 | 0 | 0 | 0.50 | 0.50 | 1 |"
    assert rows["| developed with"].startswith("| developed with | 2 | 1 (50%) | 1 | 0 | 0 | 4.00")
    assert rows["| cnn"].startswith("| cnn | 3 |")


def test_what_is_not_delivered_is_told_in_its_words():
    page = tables.page("Networks", OUTCOMES)
    assert "| odd | torch | refused | 12 | 3 | there is a \\| b in it |" in page
    assert "Left out: gone (torchvision is not installed)." in page


def test_a_network_that_nothing_else_ran_has_no_ratio():
    assert tables.ratio_of(outcome("alone", seconds=0.001)) is None
    assert "| alone | torch | 1 | 1 | - | - | - | - | - |" in tables.page(
        "x", [outcome("alone", seconds=0.001)]
    )


# The command


@pytest.mark.full
def test_the_command_runs_each_once_and_prints_the_table(command, commands, capsys):
    assert command("--all") == 0
    first = capsys.readouterr().out
    assert "| all | 3 | 3 (100%) |" in first
    count = len(commands)
    assert command("--all") == 0
    assert command("--all", "--report") == 0
    assert len(commands) == count
    assert capsys.readouterr().out == 2 * first
    assert command("--measurements", "5", "--only", "one") == 0
    assert len(commands) == count + 1


def test_an_internal_error_is_the_commands_failure(command, commands, monkeypatch, capsys):
    monkeypatch.setattr(runs, "in_time", lambda *_: ended(code=70, err="internal error: X: y\n"))
    assert command("--only", "one") == 1
    assert "| internal error |" in capsys.readouterr().out


def test_mistakes_and_empty_folders_are_sentences(command, capsys):
    assert command("--only", "none") == 2
    assert command("--report") == 2
    printed = capsys.readouterr().err
    assert "the corpus has no 'none'" in printed
    assert "there is no outcome" in printed


def test_the_networks_are_listed(command, capsys):
    assert command("--list", "--all") == 0
    assert "two: cnn, images, torch, 20 GFLOP, written here, held out" in capsys.readouterr().out
