"""The frontend compiles the network at the end of a run; what fails there is told, not raised."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import ClassVar

import pytest
from chameleon_cli.results_table import print_network
from chameleon_core.errors import ExitCode, TargetError
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.run import run_pipeline
from chameleon_core.network_result import NetworkResult
from chameleon_core.plugins import hookimpl
from chameleon_core.stages import Delivery, SpaceProvider
from synthetic import ModelOptions, SyntheticFrontend

GIVEN = {
    "latency_seconds": 0.009,
    "untuned_seconds": 1.8,
    "rivals": {"torch": 0.025},
    "max_relative_error": 1e-6,
}

TOLD = {**GIVEN, "ratio": 0.025 / 0.009}
"""What a result says of it."""


class Delivering(SyntheticFrontend):
    """Delivers a network and says what it was given."""

    seen: ClassVar[list[Delivery]] = []

    def deliver(self, delivery):
        self.seen.append(delivery)
        delivery.folder.mkdir()
        return {**GIVEN, "folder": str(delivery.folder), "reference": "torch"}


KERNELS = [
    {"name": "conv4", "tuned": True, "calls": 3, "seconds": 0.007},
    {"name": "pool", "tuned": False, "calls": 1, "seconds": 0.00198},
    {"name": "add", "tuned": False, "calls": 1, "seconds": 0.000015},
    {"name": "virtual machine", "tuned": False, "calls": 8, "seconds": 0.000005},
]


class Profiled(SyntheticFrontend):
    """Says where the time of its network goes."""

    def deliver(self, delivery):
        return {**GIVEN, "folder": str(delivery.folder), "kernels": KERNELS}


class Comparing(Delivering):
    """Says how far the comparison of its network is."""

    def deliver(self, delivery):
        delivery.plan.tell("built", 2, 3)
        delivery.plan.tell("timed", 1, 15)
        return super().deliver(delivery)


class Refusing(SyntheticFrontend):
    """Cannot deliver."""

    def deliver(self, delivery):
        raise TargetError("there is no compiler", hint="Install one.")


class Broken(SyntheticFrontend):
    """Raises what nobody expects."""

    def deliver(self, delivery):
        raise ZeroDivisionError


class Interrupted(SyntheticFrontend):
    """Is interrupted while it compiles, the first time."""

    left: ClassVar[list[str]] = []

    def deliver(self, delivery):
        if not self.left:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            finally:
                self.left.append("cleaned up")
        return GIVEN


class Swallowing(SyntheticFrontend):
    """Takes the interruption for a failure of its own."""

    def deliver(self, delivery):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt as error:
            raise TargetError("a pass failed") from error


class Listener:
    """Keeps what it is told of comparisons."""

    def __init__(self):
        self.told = []

    @hookimpl
    def chameleon_comparison_started(self, event):
        self.told.append((event.task, event.rivals))

    @hookimpl
    def chameleon_comparison_progressed(self, event):
        self.told.append((event.task, event.step, event.done, event.of))


def _run(pipeline, plugin, frontend, interruption=None, listeners=(), **more):
    model = {"odd": {"operators": [[5, 5], [4]]}}
    return run_pipeline(
        pipeline(plugins=[plugin("frontends", frontend, ModelOptions)], model=model, **more),
        listeners=listeners,
        interruption=interruption,
    )


def test_the_comparison_of_a_network_is_told_and_has_a_quarter_of_the_run(pipeline, plugin):
    Delivering.seen.clear()
    listener = Listener()
    result = _run(pipeline, plugin, Comparing, listeners=[listener])
    assert listener.told[-3:] == [
        ("the network", 2),
        ("the network", "built", 2, 3),
        ("the network", "timed", 1, 15),
    ]
    [delivery] = Delivering.seen
    allowed = delivery.plan.seconds
    assert 0 < allowed <= result.seconds / 3, "a quarter with what was before it"


def test_the_winners_are_compiled(pipeline, plugin):
    Delivering.seen.clear()
    result = _run(pipeline, plugin, Delivering)
    [delivery] = Delivering.seen
    assert [(w.task.name, w.config, w.seconds) for w in delivery.winners] == [
        (operator.name, operator.config, operator.tuned_seconds) for operator in result.operators
    ]
    assert isinstance(delivery.space, SpaceProvider)
    assert delivery.folder == result.folder / "network"
    assert result.exit_code is ExitCode.OK
    written = json.loads((result.folder / "best.json").read_text())
    assert written["network"] == {**TOLD, "reference": "torch", "folder": str(delivery.folder)}
    assert RunResult.from_json(written, folder=result.folder).network == result.network


def test_a_finished_run_is_not_compiled_again(pipeline, plugin):
    first = _run(pipeline, plugin, Delivering)
    Delivering.seen.clear()
    assert _run(pipeline, plugin, Delivering).network == first.network
    assert Delivering.seen == []


def test_a_failure_leaves_the_operators_results(pipeline, plugin, tmp_path):
    for place, (frontend, words) in enumerate(
        ((Refusing, "there is no compiler"), (Broken, "failed to deliver"))
    ):
        result = _run(pipeline, plugin, frontend, output=tmp_path / str(place))
        assert words in result.network.failure
        assert result.exit_code is ExitCode.NO_VALID_RESULT
        assert all(operator.tuned_seconds for operator in result.operators)


@pytest.mark.parametrize("frontend", [Interrupted, Swallowing])
def test_a_signal_cuts_the_delivery_short(pipeline, plugin, records, tmp_path, frontend):
    Interrupted.left.clear()
    interruption = Interruption()
    started = time.monotonic()
    with interruption.signals(), pytest.raises(RunInterrupted) as caught:
        _run(pipeline, plugin, frontend, interruption)
    assert time.monotonic() - started < 50, "it did not wait for the end"
    assert caught.value.exit_code is ExitCode.INTERRUPTED
    kept = records(tmp_path / "run")
    assert all(kept.values())
    if frontend is Interrupted:
        assert Interrupted.left == ["cleaned up"]
        result = _run(pipeline, plugin, frontend)
        assert result.network.to_json() == TOLD
        assert records(tmp_path / "run") == kept, "nothing was measured again"


def test_a_model_that_is_no_network_delivers_none(pipeline):
    assert run_pipeline(pipeline()).network == NetworkResult()


def test_where_the_time_goes_is_kept_and_shown(pipeline, plugin, capsys):
    result = _run(pipeline, plugin, Profiled)
    written = json.loads((result.folder / "best.json").read_text())
    assert written["network"]["kernels"] == KERNELS
    assert RunResult.from_json(written, folder=result.folder).network.to_json() == (
        result.network.to_json()
    )
    print_network(result.network)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["conv4", "3", "7.00", "ms", "77.8%"] in rows
    assert ["pool", "(not", "tuned)", "1", "1.98", "ms", "22.0%"] in rows
    assert ["2", "others", "9", "20.0", "µs", "0.2%"] in rows
