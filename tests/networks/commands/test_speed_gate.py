"""Whether a network is slower than another one, from turns that neighbours disturb."""

import contextlib
import json

import numpy as np
import pytest
from chameleon_bench._statistics.estimates import shift_interval
from chameleon_bench._statistics.margins import margin_of
from chameleon_core._errors import ConfigError, ExitCode, RunFolderError
from chameleon_networks._artifact.writer import FORMAT, write_manifest
from chameleon_networks._commands import speed_gate
from chameleon_networks._commands.speed_gate import Gate, judge
from hypothesis import given
from hypothesis import strategies as st


class Machine:
    """Processes whose times depend on the machine's state, and on where their memory lies."""

    def __init__(self, slower, noise=0.02, seed=0):
        self.slower, self.noise = slower, noise
        self.rng = np.random.default_rng(seed)
        self.state, self.begun = 1.0, []

    def opened(self):
        return self.process("new", 1e-3 * self.slower), self.process("old", 1e-3)

    @contextlib.contextmanager
    def process(self, name, seconds):
        own = seconds * np.exp(self.rng.normal(0, self.noise))

        class Process:
            def pause(self):
                pass

            def seconds(_, inputs, about):  # noqa: N805 - the machine is `self`
                assert inputs == [7]
                # Both CPUs share one core for a while.
                self.state *= float(np.exp(self.rng.normal(0, 0.2)))
                self.begun.append(name)
                noise = np.exp(self.rng.normal(0, self.noise, 5))
                return list(own * self.state * noise)

        process = Process()
        yield process


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("slower", "verdict"), [(1.0, "not slower"), (1.25, "slower"), (0.8, "not slower")]
)
def test_a_network_is_judged_beside_neighbours(slower, verdict, seed):
    machine = Machine(slower, seed=seed)
    gate = judge(machine.opened, [7], margin=0.1)
    assert gate.verdict == verdict
    assert gate.low <= slower <= gate.high
    assert gate.pairs >= 11
    turns = machine.begun[:4]
    assert turns == ["new", "old", "old", "new"], "neither has the first turn always"
    assert gate.exit_code == (ExitCode.THRESHOLD_MISSED if verdict == "slower" else ExitCode.OK)


def test_without_enough_time_it_is_undecided():
    gate = judge(Machine(1.0).opened, [7], margin=0.03, seconds=0.0)
    assert (gate.verdict, gate.exit_code, gate.pairs) == ("undecided", ExitCode.UNDECIDED, 1)
    assert gate.to_json()["low"] is gate.to_json()["high"] is None
    json.dumps(gate.to_json(), allow_nan=False)


def test_a_difference_at_the_margin_is_never_called_equal():
    gates = [judge(Machine(1.06, 0.03, s).opened, [7], margin=0.03, seconds=0.3) for s in range(10)]
    assert {gate.verdict for gate in gates} <= {"undecided", "slower"}


@given(st.integers(1, 40), st.floats(-1, 1), st.sampled_from([0.9, 0.99, 0.999]))
def test_intervals_hold_the_center(count, center, confidence):
    rng = np.random.default_rng(count)
    estimate, low, high = shift_interval(rng.normal(center, 0.1, count), confidence)
    assert low <= estimate <= high
    # The least share of such samples whose values are all on one side.
    assert np.isfinite(low) == np.isfinite(high) == (2 * 0.5**count <= 1 - confidence)


def test_intervals_have_their_confidence():
    rng = np.random.default_rng(1)
    held = [
        low <= 0 <= high
        for _, low, high in (shift_interval(rng.normal(0, 1, 15), 0.9) for _ in range(1000))
    ]
    assert 0.88 < np.mean(held) < 0.94


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.5", 0.005), (None, 0.03)])
def test_margins_are_percentages(text, share):
    assert margin_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["0", "-1%", "three", "100%", "%"])
def test_other_margins_are_refused(text):
    with pytest.raises(ConfigError, match="takes a percentage above 0"):
        margin_of(text)


def test_the_exit_code_of_several_sizes_is_the_worst():
    def gate(low, high):
        return Gate(ratio=1.0, low=low, high=high, margin=0.03, pairs=11)

    fine, slower, unknown = gate(0.9, 1.02), gate(1.04, 1.2), gate(0.9, 1.2)
    exit_code = speed_gate.exit_code_of
    assert exit_code({"a": fine, "b": fine}) == ExitCode.OK
    assert exit_code({"a": fine, "b": unknown}) == ExitCode.UNDECIDED
    assert exit_code({"a": slower, "b": unknown}) == ExitCode.THRESHOLD_MISSED


def _folder(path, **manifest):
    path.mkdir()
    write_manifest(path, {"format": FORMAT, "threads": 2, **manifest})
    return path


def test_a_delivered_folder_is_judged_with_inputs_of_its_shapes(tmp_path, monkeypatch):
    inputs = [
        {"name": "ids", "dtype": "int64", "shape": [1, 4]},
        {"name": "x", "dtype": "float32", "shape": [2]},
    ]
    new, old = (_folder(tmp_path / name, inputs=inputs) for name in ("new", "old"))
    judged = []

    def judge(opened, own, *, margin):
        judged.append((opened, margin))
        assert [(a.shape, str(a.dtype)) for a in own] == [((1, 4), "int64"), ((2,), "float32")]
        return Gate(ratio=1.0, low=0.9, high=1.01, margin=margin, pairs=11)

    monkeypatch.setattr(speed_gate, "judge", judge)
    results = speed_gate.gates(new, str(old), margin=0.05, at=(), trust_source=False)
    assert results[""].verdict == "not slower"
    assert [margin for _, margin in judged] == [0.05]
    with pytest.raises(ConfigError, match="--at needs a run folder"):
        speed_gate.gates(new, str(old), margin=0.05, at=("n=3",), trust_source=False)
    with pytest.raises(ConfigError, match="and no framework of this name"):
        speed_gate.gates(new, "onnxruntime", margin=0.05, at=(), trust_source=False)
    other = _folder(tmp_path / "other", inputs=inputs[:1])
    with pytest.raises(RunFolderError, match="have other inputs"):
        speed_gate.gates(new, str(other), margin=0.05, at=(), trust_source=False)
