"""The reference of a delivery starts beside what else is to do, and is waited for where needed."""

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._network_result import NetworkResult
from chameleon_core.plugin_api import ComparisonPlan
from chameleon_networks._comparison import baselines
from chameleon_networks._comparison.baselines import Baselines


class Process(contextlib.AbstractContextManager[Any]):
    """A framework that says when somebody waits for it."""

    def __init__(self, name, *, problem=""):
        self.name = name
        self.started = 0
        self.waited = 0
        self.ended = False
        self.saved = 0
        self._problem = problem

    def programs(self):
        self.saved += 1
        return {"program": "file"}

    def outputs(self, inputs):
        return inputs

    def opened(self, most_seconds=None):
        self.waited += 1
        if self._problem:
            raise ChameleonError(self._problem, hint="none")

    def __exit__(self, *_):
        self.ended = True


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Makes baselines of a framework that starts, or does not, and of what TVM makes untuned."""

    def make(stack, process, untuned=None, others=(), **more):
        def started(network, name, *, threads, warm_up=(), wait=True):
            assert (name in network.frameworks, threads) == (name == "torch", 2)
            if other := next((other for other in others if other.name == name), None):
                other.opened()
                return other
            process.started += 1
            return process

        monkeypatch.setattr(baselines, "framework_process", started)
        monkeypatch.setattr(Baselines, "_untuned", lambda self: untuned)
        options = SimpleNamespace(compare=False)
        network = SimpleNamespace(frameworks=("torch",), left_out={}, options=options, programs={})
        network.references = ("torch", *(other.name for other in others))
        delivery = SimpleNamespace(threads=2, plan=ComparisonPlan(most_seconds=30.0))
        return Baselines(network, delivery, tmp_path, stack, **more)

    return make


def test_it_is_waited_for_once_and_ends_with_the_delivery(opened):
    process = Process("torch")
    with contextlib.ExitStack() as stack:
        programs = opened(stack, process)
        assert (process.started, process.waited) == (1, 0)
        assert programs.reference is process
        assert programs.reference is process
        assert process.waited == 1
        assert not process.ended
    assert process.ended


def test_it_does_not_start_before_it_is_asked_if_its_answers_are_known(opened):
    process = Process("torch")
    with contextlib.ExitStack() as stack:
        programs = opened(stack, process, warm_up=None)
        assert process.started == 0
        assert programs.reference is process
        assert process.started == 1
    assert process.ended


def test_the_process_that_imported_the_network_runs_it_unless_it_dies(opened):
    reader, process = Process("importer"), Process("torch")
    with contextlib.ExitStack() as stack:
        programs = opened(stack, process, warm_up=["inputs"], reader=reader)
        assert programs.reference is reader
        assert (reader.waited, process.started) == (1, 0)
    assert reader.ended
    with contextlib.ExitStack() as stack:
        programs = opened(stack, process, reader=Process("importer", problem="it was killed"))
        assert (programs.reference, programs.left_out) == (process, {})


def test_programs_are_saved_once_and_only_for_other_processes(opened):
    reader, process = Process("importer"), Process("torch in float64")
    with contextlib.ExitStack() as stack:
        programs = opened(stack, process, reader=reader)
        assert programs.reference.outputs("inputs") == "inputs"
        assert reader.saved == 0
        assert programs.opened("torch in float64") is process
        assert programs.opened("torch in float64") is process
        assert (reader.saved, programs._network.programs) == (1, {"program": "file"})


def test_one_that_does_not_start_makes_room_for_the_untuned_network(opened):
    untuned = Process("untuned")
    with contextlib.ExitStack() as stack:
        programs = opened(stack, Process("torch", problem="it is broken"), untuned)
        assert programs.reference is untuned
        assert programs.left_out == {"torch": "it is broken"}
        assert programs.unverified == "torch cannot: it is broken"


def test_another_implementation_takes_its_place_before_the_untuned_network(opened):
    others = [Process("first", problem="it is not installed"), Process("second")]
    with contextlib.ExitStack() as stack:
        broken = Process("torch", problem="it is broken")
        programs = opened(stack, broken, Process("untuned"), others)
        assert programs.reference is others[1]
        assert programs.unverified is None
    assert others[1].ended


class Opening(Process):
    """Opens its network on a clock, or is killed when its time is over."""

    def __init__(self, name, seconds, clock):
        super().__init__(name)
        self._seconds, self._clock = seconds, clock
        self.answer = {}

    def opened(self, most_seconds=300.0):
        self.waited += 1
        self._clock[0] += min(self._seconds, most_seconds)
        if self._seconds > most_seconds:
            raise ChameleonError(f"{self.name} did not answer")

    def about(self):
        return {"memory_bytes": 1}


@pytest.mark.parametrize(
    ("already", "timed", "left_out"),
    [
        (0.0, {"torch", "onnxruntime"}, {"openvino", "untuned"}),
        (31.0, {"torch"}, {"onnxruntime", "openvino", "untuned"}),
    ],
)
def test_rivals_that_do_not_open_in_time_are_left_out(
    opened, monkeypatch, already, timed, left_out
):
    clock = [already]
    monkeypatch.setattr(baselines, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(
        baselines, "time_in_turns", lambda each, *_, **__: {one.name: [1.0] for one in each}
    )
    processes = {
        name: Opening(name, seconds, clock)
        for name, seconds in (("torch", 0.0), ("onnxruntime", 5.0), ("openvino", 90.0))
    }
    monkeypatch.setattr(Baselines, "_process", lambda _, name, **__: processes[name])
    ours = Opening("network", 0.0, clock)
    with contextlib.ExitStack() as stack:
        programs = opened(stack, processes["torch"], Opening("untuned", 0.0, clock))
        programs._network.frameworks = tuple(processes)
        programs._network.options.compare = True
        programs._network.precision_of = lambda _: "float32"
        assert programs.reference is processes["torch"]
        clock[0] = 0.0
        programs.begin()
        clock[0] = already
        by_default = SimpleNamespace(by_default=True)
        result = programs.timed(NetworkResult(), ours, [], by_default)
    assert result.rivals.keys() == timed
    assert dict(result.left_out) == dict.fromkeys(left_out, NetworkResult.TIME_IS_OVER)


def test_without_any_nothing_is_delivered(opened):
    with contextlib.ExitStack() as stack:
        programs = opened(stack, Process("torch", problem="it is broken"))
        with pytest.raises(ChameleonError, match="neither torch nor TVM without tuning"):
            _ = programs.reference
