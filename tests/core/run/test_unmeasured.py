"""What the budget does not reach is delivered with its first guess, and a slow network is said."""

import json

import attrs
import pytest
from chameleon_cli._best import command as best_command
from chameleon_cli._run import _print
from chameleon_cli._status import command as status_command
from chameleon_core._errors import ExitCode
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.nodes import PipelineError
from click.testing import CliRunner
from structlog.testing import capture_logs
from synthetic import SyntheticFrontend

FEW = {"measurements": 2, "batch_size": 2, "scope": "network"}
OPERATORS = [[5, 5], [4], [6]]
OURS, THEIRS = 0.004, 0.003


class Delivering(SyntheticFrontend):
    """Delivers with whatever it is given, and is slower than onnxruntime."""

    seen = []
    answer = {}

    def deliver(self, delivery):
        self.seen.append(delivery)
        delivery.folder.mkdir()
        return {
            "latency_seconds": OURS,
            "rivals": {"torch": 0.02, "onnxruntime": THEIRS},
            "left_out": {"openvino": "openvino is not installed"},
            "max_relative_error": 1e-6,
            "folder": str(delivery.folder),
            "unmeasured": [
                {"name": winner.task.name, "kernel": "first guess", "because": "it was not reached"}
                for winner in delivery.winners
                if not winner.measured
            ],
            **self.answer,
        }


@pytest.fixture
def run(modelled, monkeypatch):
    def made(budget=FEW, *, failing=0, answer=None, **more):
        monkeypatch.setattr(Delivering, "answer", answer or {})
        monkeypatch.setattr(Delivering, "seen", [])
        model = {"odd": {"operators": OPERATORS, "failing": failing}}
        more = {"model": model, "baselines": [], **more}
        return run_pipeline(modelled(Delivering, budget=budget, **more))

    return made


def test_what_is_not_reached_is_delivered_with_its_first_guess(run):
    with capture_logs() as logs:
        result = run()
    [delivery] = Delivering.seen
    values = {winner.task.name: winner for winner in delivery.winners}
    assert list(values) == ["op0", "op1", "op2"]
    assert [winner.measured for winner in values.values()] == [True, True, False]
    assert (values["op2"].config, values["op2"].seconds) == ((0,), None)
    assert result.exit_code is ExitCode.OK
    [logged] = [log for log in logs if log["event"] == "first_guesses_delivered"]
    assert (logged["count"], logged["of"], logged["operators"]) == (1, 3, ["op2"])
    written = json.loads((result.folder / "best.json").read_text())
    assert written["operators"][2]["config"] is None
    assert written["operators"][2]["guesses"] == [[0]]
    assert [row["name"] for row in written["network"]["unmeasured"]] == ["op2"]
    again = RunResult.from_json(written, folder=result.folder)
    assert (again.operators, again.network) == (result.operators, result.network)


def test_operators_that_all_failed_have_no_winner_and_the_network_counts(run):
    result = run(failing=100)
    [delivery] = Delivering.seen
    assert [winner.task.name for winner in delivery.winners] == ["op2"], "the one not reached"
    assert result.exit_code is ExitCode.OK


def test_a_network_that_is_not_delivered_is_no_result(run):
    result = run(answer={"failure": "the network is not delivered", "folder": None})
    assert result.exit_code is ExitCode.NO_VALID_RESULT


def test_operators_without_a_network_need_times(pipeline):
    result = run_pipeline(pipeline(budget=FEW, operators=OPERATORS))
    assert result.exit_code is ExitCode.NO_VALID_RESULT


# -- slower than what is installed ------------------------------------------------------------


KERNELS = [
    {"name": "conv", "tuned": True, "calls": 2, "seconds": 0.0015},
    {"name": "pool", "tuned": False, "calls": 1, "seconds": 0.0010},
    {"name": "dense", "tuned": True, "calls": 1, "seconds": 0.0011},
    {"name": "head", "tuned": True, "calls": 1, "seconds": 0.0003},
    {"name": "add", "tuned": False, "calls": 1, "seconds": 0.00001},
]


def _network(**more):
    return NetworkResult(
        latency_seconds=OURS,
        rivals={"torch": 0.02, "onnxruntime": THEIRS},
        kernels=tuple(NetworkResult.Kernel(**kernel) for kernel in KERNELS),
        unmeasured=(
            NetworkResult.Unmeasured(
                name="dense", kernel="first guess", because="it was not reached"
            ),
        ),
        folder="here",
        **more,
    )


def test_a_slower_network_is_said_with_the_kernels_to_blame():
    assert _network().slower({"conv": 5e-4}) == (
        "the network is slower than onnxruntime: 4 ms against 3 ms, 0.75 times its speed. Most of "
        "its time goes to dense, never measured, 1.1 ms (28%); pool, not tuned, 1 ms (26%); "
        "conv, 1.5 ms (38%), 1 ms alone"
    )


def test_operators_with_default_schedules_are_part_of_the_summary(run):
    because = "with the guess before, its outputs are off"
    slow = [
        {"name": name, "kernel": kernel, "because": because}
        for name, kernel in (("a", "default schedule"), ("b", "next guess"))
    ]
    lines = run(answer={"unmeasured": slow}).summary_lines
    sentence = (
        "1 operator runs with TVM's default schedule, which may be many times slower: " + because
    )
    assert f"{sentence}." in lines
    assert _network().unscheduled is None


def test_a_faster_network_and_one_compared_with_nothing_are_not_called_slow():
    assert attrs.evolve(_network(), latency_seconds=0.002).slower() is None
    assert attrs.evolve(_network(), rivals={}).slower() is None
    assert NetworkResult().slower() is None


def test_it_is_in_json(run):
    value = run(answer={"kernels": KERNELS}).to_json()
    assert value["slower"].startswith("the network is slower than onnxruntime: 4 ms against 3 ms")
    assert value["network"]["ratio"] == pytest.approx(THEIRS / OURS)


UNCOMPARED = (
    "network: 1 times the speed of the fastest rival was asked for, but it was compared with none"
)


@pytest.mark.parametrize(
    ("require", "answer", "code", "words"),
    [
        ({"network_ratio": 0.7}, {}, ExitCode.OK, []),
        (
            {"network_ratio": 1.0},
            {},
            ExitCode.THRESHOLD_MISSED,
            ["network: 0.750 instead of 1 times the speed of the fastest rival"],
        ),
        ({"network_ratio": 1.0}, {"rivals": {}}, ExitCode.THRESHOLD_MISSED, [UNCOMPARED]),
    ],
)
def test_a_network_may_be_required_to_be_as_fast_as_its_rivals(run, require, answer, code, words):
    result = run(answer=answer, require=require)
    assert (result.missed, result.exit_code) == (words, code)
    finished = run(answer=answer, require=require)
    assert Delivering.seen == [], "it was only read"
    assert (finished.missed, finished.exit_code) == (words, code)


@pytest.mark.parametrize(
    ("require", "words"),
    [
        ({"min_ratio": 1.0}, "'min_ratio' and 'against' belong together"),
        ({"against": "synthetic"}, "'min_ratio' and 'against' belong together"),
        ({}, "asks for nothing"),
        ({"network_ratio": 0}, "'network_ratio' for 'require'"),
    ],
)
def test_a_requirement_that_says_nothing_is_refused(run, require, words):
    with pytest.raises(PipelineError, match=words):
        run(require=require)


def test_a_budget_of_no_measurement_is_told_to_the_frontend(run):
    with capture_logs() as logs:
        run({"measurements": 0})
    assert [row.measures for row in Delivering.seen] == [False]
    assert not any("did not reach" in log.get("reason", "") for log in logs)
    run()
    assert [row.measures for row in Delivering.seen] == [True]


# -- what commands say ------------------------------------------------------------------------


def test_the_command_says_first_that_the_network_is_slower(run, capsys):
    result = run(answer={"kernels": KERNELS})
    capsys.readouterr()
    _print(result)
    printed = capsys.readouterr()
    assert printed.out.startswith("the network is slower than onnxruntime")
    lines = printed.out.splitlines()
    assert "not measured, delivered with the first guess (it was not reached): op2" in lines
    assert "openvino left out: openvino is not installed" in lines
    assert "no configuration gave a valid result" not in printed.err


def test_best_and_status_name_what_was_never_measured(run):
    folder = run().folder
    best = CliRunner().invoke(best_command, [str(folder)])
    assert best.exit_code == 0
    assert "op2: never measured; the network has its first guess" in best.output
    document = json.loads(CliRunner().invoke(best_command, [str(folder), "--json"]).output)
    assert [row["delivered_with"] for row in document["operators"]] == [None, None, "first guess"]
    assert "never measured: op2" in CliRunner().invoke(status_command, [str(folder)]).output
