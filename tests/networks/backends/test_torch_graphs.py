"""``torch.compile(backend="chameleon")`` gives torch's answers, by a network if that is faster."""

import contextlib
import io
import json
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from chameleon_core.errors import ConfigError
from chameleon_core.loop.start import shared_records
from chameleon_networks import backends
from chameleon_networks.backends import graph_deliveries as deliveries
from chameleon_networks.backends import graph_exports, waiting_run
from chameleon_networks.backends import torch_graphs as backend
from chameleon_networks.backends.torch_graphs import CompiledGraph, chameleon
from chameleon_networks.importers.torch.lowering import decompositions
from chameleon_networks.running.kept_networks import KeptNetwork
from structlog.testing import capture_logs
from torch import nn
from torch._dynamo.convert_frame import compile_lock
from torch._export.utils import _compiling_state_context

EXAMPLES = Path(__file__).parents[3] / "examples"

DOUBLED = torch.fx.symbolic_trace(lambda x: x * 2.0)


class Network:
    """A delivered network of a function of one tensor; ``seen`` has what it was called with."""

    def __init__(self, function=lambda x: (x * 2.0,)):
        self.function, self.seen = function, []

    def arrays(self, inputs):
        return [value.numpy() for value in inputs]

    def outputs(self, arrays):
        self.seen.append(arrays)
        answer = self.function(torch.from_numpy(arrays[0]))
        return [np.array(value.numpy(), order="C") for value in answer]

    def close(self):
        pass


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own; torch forgets what it compiled before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch._dynamo.reset()
    return tmp_path / "chameleon" / "torch"


@pytest.fixture
def eager_is_slow(monkeypatch):
    """Whatever the machine is busy with, networks count as faster."""
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (1.0, 2.0))


@pytest.fixture
def no_delivery(monkeypatch):
    """Nothing is delivered."""

    refusal = Mock(side_effect=AssertionError("a run was started"))
    monkeypatch.setattr(deliveries, "waiting_run", refusal)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.register_buffer("shift", torch.linspace(-1.0, 1.0, 16))

    def forward(self, x):
        y = self.norm(self.first(x)) + self.shift
        return {"sum": y.sum(-1), "signs": y > 0}


def _stays(logs):
    return [log["reason"] for log in logs if log["event"] == "torch's own code computes a graph"]


def _same(answer, expected):
    assert answer.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(answer[name], value)


def test_a_network_computes_what_torch_does(cache, eager_is_slow, monkeypatch):
    net, x = Net().eval(), torch.randn(3, 8)
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        _same(compiled(x), net(x))
        assert not _stays(logs)
        assert [log["event"] for log in logs][-1] == "a network computes a graph"
        # This process has imported the graph and computed torch's answers for the run.
        [result] = cache.glob("*/predicted*/run/best.json")
        assert json.loads(result.read_text())["network"]["reference_day"] is not None
        assert not list(cache.with_name("networks").iterdir())
        other = torch.randn(3, 8)
        monkeypatch.setattr(CompiledGraph, "_answer_and_adopt", None)
        _same(compiled(other), net(other))
        # In a new process the network is there.
        monkeypatch.undo()
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
        monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (1.0, 2.0))
        monkeypatch.setattr(deliveries, "waiting_run", None)
        monkeypatch.setitem(sys.modules, "chameleon_networks.backends.graph_exports", None)
        torch._dynamo.reset()
        again = torch.compile(net, backend=chameleon)
        _same(again(x), net(x))
        _same(again(other), net(other))
        net.first.weight.mul_(2.0)
        _same(again(other), net(other))
    assert [reason for reason in _stays(logs) if "weights have changed" in reason]


def test_a_damaged_network_is_compiled_again(cache, eager_is_slow):
    net, x = Net().eval(), torch.randn(3, 8)

    def events():
        torch._dynamo.reset()
        with torch.no_grad(), capture_logs() as logs:
            _same(torch.compile(net, backend=chameleon)(x), net(x))
        return [log["event"] for log in logs]

    assert events()[-1] == "a network computes a graph"
    [library] = cache.glob("*/predicted*/run/network/network.so")
    library.unlink()
    library.write_bytes(b"cut off")
    assert events()[-1] == "torch's own code computes a graph"
    assert events()[-1] == "a network computes a graph"


def _attention(x):
    """Dropout of a network that is not trained, and attention that drops nothing."""
    x = nn.functional.dropout(x[None], 0.5, training=False)
    return nn.functional.scaled_dot_product_attention(x, x, x)


def _windows(x):
    """Windows whose number torch computes from sizes."""
    return x.view(6, torch.div(x.shape[1], 4, rounding_mode="trunc"), 4).sum(-1)


@torch.library.custom_op("chameleon_tests::doubled", mutates_args=())
def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


_doubled.register_fake(torch.empty_like)
LIBRARY = torch.library.Library("chameleon_tests", "FRAGMENT")
LIBRARY.define("scaled(Tensor x) -> Tensor")
LIBRARY.impl("scaled", lambda x: x * 2.0, "CompositeImplicitAutograd")
LIBRARY.define("scaled.by(Tensor x, float y) -> Tensor")
LIBRARY.impl("scaled.by", lambda x, y: x * y, "CPU")
LIBRARY.impl("scaled.by", lambda x, _: torch.empty_like(x), "Meta")
SCALED = torch.ops.chameleon_tests.scaled


def _unseen(function):
    """A function that torch does not trace into, with the name of others."""

    @torch.compiler.allow_in_graph
    def unseen(x):
        return function(x)

    return unseen


WEIGHT = nn.Parameter(torch.ones(8))
CASES = {
    "argument": (lambda x: x.mul_(2.0) + 1.0, "changes a tensor in place"),
    "running mean": (nn.BatchNorm1d(8), "changes a tensor in place"),
    "views": (lambda x: (x.view(-1), x[1:]), "views of arguments"),
    "dropout": (nn.Dropout(0.5), "draws random numbers"),
    "gradients": (torch.enable_grad()(lambda x: WEIGHT * x), "gradients of an output"),
    "custom operator": (lambda x: _doubled(x) + 1.0, "custom operator chameleon_tests.doubled"),
    "custom overload": (lambda x: SCALED(x, 2.0), "custom operator chameleon_tests.scaled.by"),
    "custom inside": (_unseen(_doubled), "chameleon_tests.doubled"),
    "empty": (lambda x: (x[:, :0] * 2.0, x + 1.0), "is empty"),
    # Nothing but the network itself, which is never there in this test.
    "inside": (lambda x: (x + 1.0).relu_(), "cannot be used"),
    "attention": (_attention, "cannot be used"),
    "composite": (lambda x: SCALED(x) + 1.0, "cannot be used"),
    "windows": (_windows, "cannot be used"),
    "checked matrix": (lambda x: torch.linalg.inv(x[:, :6]), "cannot be used"),
}


@pytest.mark.parametrize(("net", "reason"), CASES.values(), ids=CASES)
def test_what_no_network_can_replace_stays_torchs(net, reason, eager_is_slow, monkeypatch):
    def folder(delivery):
        delivery.prepare()
        torch.export.load(delivery._program)
        return Path()

    monkeypatch.setattr(deliveries.Delivery, "folder", folder)
    x = torch.randn(6, 8)
    with torch.no_grad(), capture_logs() as logs:
        torch.manual_seed(0)
        mine = x.clone()
        answers = [torch.compile(net, backend=chameleon)(mine) for _ in range(2)]
        torch.manual_seed(0)
        theirs = x.clone()
        expected = [net(theirs) for _ in range(2)]
    torch.testing.assert_close(answers, expected)
    torch.testing.assert_close(mine, theirs)
    [message] = _stays(logs)
    assert reason in message


def test_gradients_and_open_sizes_stay_torchs(no_delivery):
    net = Net().eval()
    with capture_logs() as logs:
        compiled = torch.compile(net, backend=chameleon, dynamic=True)
        compiled(torch.randn(3, 8))["sum"].sum().backward()
        assert net.first.weight.grad is not None
        with torch.no_grad():
            x = torch.randn(5, 8)
            _same(torch.compile(net, backend=chameleon, dynamic=True)(x), net(x))
    reasons = _stays(logs)
    assert len(reasons) == 2
    assert all("size is left open" in reason or "gradients" in reason for reason in reasons)


@pytest.fixture
def delivered(tmp_path, eager_is_slow, monkeypatch):
    """Lets a network be delivered that computes a function of one tensor."""

    def deliver(function):
        network = Network(function)
        monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "nowhere")
        monkeypatch.setattr(backend, "load", lambda *_, **__: network)
        return network

    return deliver


def _set_data(weight):
    weight.data = weight.data * 3.0  # as nn.Module.half and vector_to_parameters do


CHANGES = {
    "data": lambda weight: weight.data.mul_(3.0),
    "other data": _set_data,
    "NumPy": lambda weight: weight.detach().numpy().fill(3.0),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_that_autograd_does_not_count_is_noticed(change, delivered):
    net, x = nn.Linear(16, 4, bias=False), torch.randn(3, 16)
    net.weight.data = torch.randn(16, 4).t()
    kept = net.weight.detach().clone()
    network = delivered(lambda x: (x @ kept.t(),))
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), net(x))
        assert len(network.seen) == 3
        change(net.weight)
        torch.testing.assert_close(compiled(x), net(x))
    assert _stays(logs) == ["weights have changed since it was compiled"]


def _views(x):
    y = x * 2.0
    return y.t(), y, y.view(-1)[2:], y.sum(-1).expand(5, 3), (y + 1.0).t()


def test_outputs_share_memory_and_have_strides_as_torchs_do(delivered):
    network = delivered(_views)
    compiled, x = torch.compile(_views, backend=chameleon), torch.randn(3, 4)
    with torch.no_grad():
        compiled(x)
        answer, expected = compiled(x + 1.0), _views(x + 1.0)
    assert len(network.seen) == 2
    for _ in range(2):
        torch.testing.assert_close(answer, expected, check_stride=True)
        answer[1].zero_()
        expected[1].zero_()


def test_outputs_that_are_views_of_arguments_stay_views(eager_is_slow):
    """A graph break behind a view gives such a graph."""

    def views(x, y):
        return y.view(-1)[2:], x * 2.0, x.t(), y.sum(1), x.expand(2, 3, 4)

    compiled, memory = torch.compile(views, backend=chameleon), torch.randn(2, 7)
    with torch.no_grad(), capture_logs() as logs:
        for start in (0, 1, 2):
            x, y = torch.randn(3, 4), memory.view(-1)[start : start + 12].view(2, 6)
            answer, expected = compiled(x, y), views(x, y)
            torch.testing.assert_close(answer, expected, check_stride=True)
            for number in (0, 2, 4):
                assert answer[number].data_ptr() == expected[number].data_ptr()
    assert not _stays(logs)


def test_a_tensor_that_was_made_in_inference_mode_may_change(eager_is_slow):
    net, x = nn.Linear(8, 4), torch.randn(3, 8)
    with torch.inference_mode(), capture_logs() as logs:
        net.register_buffer("kept", torch.ones(4))
        net.register_forward_hook(lambda module, _, output: output * module.kept)
        compiled = torch.compile(net, backend=chameleon)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), net(x))
            net.kept.mul_(3.0)
    assert not _stays(logs)


@pytest.mark.parametrize(
    ("given", "cast"), [("bfloat16", False), ("float16", False), ("float32", True)]
)
def test_what_networks_have_no_dtype_for_stays_torchs(given, cast, no_delivery):
    dtype = getattr(torch, given)
    net, x = nn.Linear(8, 8).to(dtype), torch.randn(3, 8, dtype=dtype)
    with torch.no_grad(), torch.autocast("cpu", torch.float16, enabled=cast):
        with capture_logs() as logs:
            answer = torch.compile(net, backend=chameleon)(x)
        torch.testing.assert_close(answer, net(x))
    [reason] = _stays(logs)
    assert ("autocast" if cast else f"in {given}") in reason


FAULTS = {"slow": "slower", "wrong": "other answers", "missing": "be used", "dtype": "float64"}


@pytest.mark.parametrize(("fault", "reason"), FAULTS.items())
def test_a_network_that_is_no_better_is_not_used(fault, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "nowhere")
    if fault != "missing":
        factor = {"wrong": 3.0, "dtype": np.full(3, 2.0)}.get(fault, 2.0)
        network = Network(lambda x: (torch.as_tensor(x.numpy() * factor),))
        monkeypatch.setattr(backend, "load", lambda *_, **__: network)
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (2.0, 1.0))
    x = torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        compiled = torch.compile(lambda value: value * 2.0, backend=chameleon)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), x * 2.0)
    [message] = _stays(logs)
    assert reason in message


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        (None, None, "Not a directory"),
        ("save", RuntimeError("PytorchStreamWriter failed"), "PytorchStreamWriter failed"),
        ("save", ValueError("two\nlines.\n  Three"), "two; lines. Three"),
        ("export", AssertionError(), "cannot export it: AssertionError"),
    ],
)
def test_whatever_fails_leaves_torchs_code(step, error, reason, tmp_path, monkeypatch):
    if step is None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        monkeypatch.setattr(torch.export, step, Mock(side_effect=error))
    x = torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        compiled = torch.compile(lambda value: value * 2.0, backend=chameleon)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), x * 2.0)
    [given] = _stays(logs)
    assert reason in given


@pytest.mark.parametrize(
    ("seconds", "fastest"),
    [((3.0, 1.0), "tuned"), ((1.0, 3.0), "predicted"), ((1.0, 1.0), "tuned")],
)
def test_the_fastest_network_computes_beside_tuning(seconds, fastest, tmp_path, monkeypatch):
    """torch answers until a network is ready; a slow network takes nothing over."""
    networks = {name: Network() for name in ("predicted", "tuned")}
    done = {name: threading.Event() for name in networks}

    def folder(delivery, *, nice):
        assert nice
        name = "predicted" if delivery._seconds is None else "tuned"
        done[name].wait(240)
        return tmp_path / name / "network"

    def timed(_, network, *__):
        return seconds[network is networks["tuned"]], 2.0

    monkeypatch.setattr(deliveries.Delivery, "folder", folder)
    monkeypatch.setattr(backend, "load", lambda folder, threads: networks[folder.parent.name])
    monkeypatch.setattr(CompiledGraph, "_seconds", timed)
    compiled = torch.compile(lambda value: value * 2.0, backend=chameleon, mode="background")
    x = torch.ones(3)
    with torch.no_grad():
        for name, network in networks.items():
            torch.testing.assert_close(compiled(x), x * 2.0)
            assert not network.seen
            done[name].set()
            for _ in range(2400):
                torch.testing.assert_close(compiled(x), x * 2.0)
                if network.seen:
                    break
                time.sleep(0.1)
        calls = {name: len(network.seen) for name, network in networks.items()}
        torch.testing.assert_close(compiled(x), x * 2.0)
    used = [name for name, network in networks.items() if len(network.seen) > calls[name]]
    assert used == [fastest]


def test_a_killed_run_of_another_mode_is_no_refusal(children, tmp_path):
    """Each mode writes its own pipeline, also if the exported graph is there already."""
    pipelines = []

    def deliver(folder):
        pipelines.append(json.loads((folder / "pipeline.yaml").read_text(encoding="utf-8")))
        assert (folder / pipelines[-1]["model"]["torch"]["source"]).exists()
        (folder / "run" / "network").mkdir(parents=True)
        (folder / "run" / "network" / "manifest.json").touch()
        return True

    folders = children(deliver, 0)
    tuned = deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=5.0)
    predicted = tuned.predicted()
    predicted.prepare()
    tuned.prepare(exported=predicted)
    (folder,) = {delivery._folder.parent for delivery in (predicted, tuned)}
    (tuned._folder / "pipeline.yaml").unlink()
    for delivery in (predicted, tuned):
        delivery.folder()
    assert [pipeline["budget"].get("wall_time") for pipeline in pipelines] == [None, 5.0]
    assert folders == [predicted._folder, tuned._folder]
    assert not [*folder.glob("**/graph.pt2")]


def test_the_graph_of_a_killed_process_is_removed(cache, children, run_python):
    """The graph of a process that lives stays."""
    children(Mock(side_effect=KeyboardInterrupt), 0)
    program = "import os, torch; from chameleon_networks.backends.graph_deliveries import Delivery;"
    program += "graph = torch.fx.symbolic_trace(lambda x: x * 3.0);"
    program += "Delivery(graph, [torch.ones(3)], [], seconds=5.0).prepare(); os._exit(0)"
    run_python(program)
    [left] = cache.glob("*/*/graph.pt2")
    living = deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=5.0)
    assert not left.exists()
    living.prepare()
    deliveries._remove_abandoned.cache_clear()
    other = deliveries.Delivery(DOUBLED, [torch.ones(4)], [], seconds=5.0)
    other.prepare()
    assert len([*cache.glob("*/*/graph.pt2")]) == 2
    for delivery in (living, other):
        with pytest.raises(KeyboardInterrupt):
            delivery.folder()
    assert not [*cache.glob("*/*/graph.pt2")]


@pytest.mark.parametrize("share", [0.9, 1.1])
@pytest.mark.parametrize("calls", [1, 4, 16])
def test_comparisons_of_other_moments_correct_a_bad_one(share, calls, tmp_path, monkeypatch):
    """The moments are calls of one process, or of processes with one or four calls each."""
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "network")
    monkeypatch.setattr(backend, "load", lambda *_, **__: Network())
    comparisons = iter([1 / share])
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (next(comparisons, share), 1.0))
    clocked = Mock(side_effect=lambda f, arguments: (f(*arguments), 1.0 if f is DOUBLE else share))
    monkeypatch.setattr(backend, "_clocked", clocked)
    x, computes = torch.tensor([1.0, torch.nan, -torch.inf]), []
    for number in range(16):
        if number % calls == 0:
            graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
        torch.testing.assert_close(graph(x), (x * 2.0,), equal_nan=True)
        computes.append(graph.computes)
    # A network that won is not timed in the first call of a process, which would take longer.
    assert computes[0] == (share > 1.0)
    assert computes[-1] == (share < 1.0 or calls == 1)


DOUBLE = torch.fx.symbolic_trace(lambda x: (x * 2.0,))


def _loads(monkeypatch, **networks):
    """Networks are loaded by the names of their folders; the result counts how often."""
    load = Mock(side_effect=lambda folder, threads: networks[folder.parent.name])
    monkeypatch.setattr(backend, "load", load)
    return load


def test_a_network_with_other_answers_is_not_tried_again(tmp_path, eager_is_slow, monkeypatch):
    load = _loads(monkeypatch, wrong=Network(lambda x: (x.abs() * 2.0,)))
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._begun = graph._awaits = True
    graph._inputs, graph._folder = [0], tmp_path / "wrong" / "network"
    for first in (-1.0, *[1.0] * 20):
        graph(torch.tensor([first, 2.0]))
    assert load.call_count == 1
    assert not graph.computes


def test_a_tuned_network_gets_another_chance(tmp_path, monkeypatch):
    tuned = Network()
    _loads(monkeypatch, predicted=Network(), tuned=tuned)
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._begun, graph._inputs = True, [0]
    seconds = {"predicted": iter([0.5] * 20), "tuned": iter([0.9, *[0.1] * 20])}

    def timed(_, network, rival, __):
        kind = "tuned" if network is tuned else "predicted"
        return next(seconds[kind]), 1.0 if rival is DOUBLE else 0.5

    monkeypatch.setattr(CompiledGraph, "_seconds", timed)
    for name in seconds:
        graph._folder = tmp_path / name / "network"
        graph(torch.ones(3))
    assert graph._network is not tuned
    for _ in range(4):
        graph(torch.ones(3))
    assert graph._network is tuned
    predicted = Mock(folder=lambda nice: graph._folder)
    graph._tune_beside(predicted, Mock(folder=Mock(side_effect=OSError)))
    assert graph.computes, "a failure of tuning takes nothing away"


def test_a_change_of_weights_is_no_comparison(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    _loads(monkeypatch, run=Network())
    product = torch.fx.symbolic_trace(lambda w, x: (w * x,))
    graph = CompiledGraph(product, [0], backend.BackendOptions())
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "run" / "network")
    weight, x = torch.tensor(2.0), torch.ones(3)
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (2.0, 1.0))
    graph(weight, x)
    monkeypatch.undo()
    _loads(monkeypatch, run=Network())
    weight.copy_(weight.clone())
    for _ in range(4):
        graph(weight, x)
    assert not graph.computes
    [share] = json.loads((tmp_path / "run" / "comparisons.json").read_text(encoding="utf-8"))
    assert share == 2.0


def test_instances_of_a_layer_have_networks_of_their_own(tmp_path, eager_is_slow, monkeypatch):
    """A graph break inside a repeated layer makes torch call one graph for all instances."""
    weights = {str(n): torch.full((3,), float(n)) for n in range(1, backend._INSTANCES + 3)}
    networks = {name: Network(lambda x, n=float(name): (n * x,)) for name in weights}
    _loads(monkeypatch, **networks)
    name_of = lambda delivery: f"{delivery._arguments[0][0]:.0f}"  # noqa: E731
    monkeypatch.setattr(
        deliveries.Delivery, "folder", lambda delivery: tmp_path / name_of(delivery) / "network"
    )
    product = torch.fx.symbolic_trace(lambda w, x: (w * x,))
    graph, x = CompiledGraph(product, [0], backend.BackendOptions()), torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            for weight in weights.values():
                torch.testing.assert_close(graph(weight, x), (weight * x,))
        computed = {name: len(network.seen) for name, network in networks.items()}
        weights["1"].add_(1.0)
        for weight in weights.values():
            torch.testing.assert_close(graph(weight, x), (weight * x,))
    assert [*computed.values()] == [2] * backend._INSTANCES + [0] * 2
    later = [len(network.seen) - computed[name] for name, network in networks.items()]
    assert later == [0] + [1] * (backend._INSTANCES - 1) + [0] * 2
    assert _stays(logs) == [
        f"more than {backend._INSTANCES} sets of weights share it",
        "weights have changed since it was compiled",
    ]


@pytest.mark.parametrize(
    "damaged", ["[NaN]", "[" * 100_000, f"[1{'0' * 400}]", '"0123"', '{"1": 1}', "[-1.0, 0]"]
)
def test_damaged_comparisons_count_as_none(damaged, tmp_path):
    (tmp_path / "comparisons.json").write_text(damaged, encoding="utf-8")
    comparisons = backend._Comparisons(tmp_path / "network")
    assert comparisons.share == np.inf
    comparisons.add(1.0, 2.0)
    assert backend._Comparisons(tmp_path / "network").share == 0.5


def test_weights_are_compared_bit_by_bit():
    pairs = ((np.nan, 0.0), (np.inf, np.finfo(np.float32).max), (1 << 24, (1 << 24) + 1))
    for before, after in pairs:
        numbers = (torch.tensor([number]) for number in (before, after))
        same, other = ({number.dtype: [number]} for number in numbers)
        assert backend._bits(same) == backend._bits(same)
        assert backend._bits(same) != backend._bits(other)


def test_a_network_computes_beside_a_view_of_a_parameter(delivered):
    delivered(lambda x: (x * 2.0,))
    net = nn.Linear(3, 2)
    net.forward = lambda x: (net.weight[0], x * 2.0)
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            view, product = compiled(torch.ones(3))
    assert view.data_ptr() == net.weight.data_ptr()
    torch.testing.assert_close(product, torch.full((3,), 2.0))
    assert not _stays(logs)


def test_views_of_arguments_are_torchs(cache, eager_is_slow):
    """torch does not trace anew for another place in memory."""
    memory = torch.arange(8.0)
    function = lambda x: (x.as_strided((2,), (1,), 0), x * 2.0, x[1:], x.view(torch.int32))  # noqa: E731
    compiled = torch.compile(function, backend=chameleon)
    with torch.inference_mode(), capture_logs() as logs:
        for part in (memory[:4], memory[4:], memory[2:6]):
            answer = compiled(part)
            for own, expected in zip(answer, function(part), strict=True):
                torch.testing.assert_close(own, expected)
            assert answer[2].data_ptr() == part[1:].data_ptr()
        moved = torch.compile(lambda x: x.as_strided((2,), (1,), 0) * x[:2], backend=chameleon)
        for part in (memory[:4], memory[4:]):
            torch.testing.assert_close(moved(part), memory[:2] * part[:2])
    [reason] = _stays(logs)
    assert "as_strided" in reason


@pytest.mark.parametrize("records", [None, "none", "https://host/records", "mine.sqlite"])
def test_a_run_uses_the_records_of_the_options(records, cache, monkeypatch):
    monkeypatch.setattr(deliveries.Delivery, "folder", deliveries.Delivery.prepare)
    monkeypatch.delenv("CHAMELEON_RECORDS", raising=False)
    options = {} if records is None else {"records": records}
    with torch.no_grad():
        compiled = torch.compile(Net().eval(), backend=chameleon, options=options)
        compiled(torch.randn(3, 8))
    [pipeline] = cache.glob("*/*/pipeline.yaml")
    expected = str(Path.cwd() / "mine.sqlite") if records == "mine.sqlite" else records
    document = json.loads(pipeline.read_text(encoding="utf-8"))
    assert document.get("records") == expected
    # Nobody sees how much faster than untuned operators the tuned ones are.
    assert document["baselines"] == []


@pytest.fixture
def children(monkeypatch):
    """Scripts the processes that deliver: what they do, how they end, and what they print."""

    def script(work, status, log=""):
        folders = []

        @contextlib.contextmanager
        def child(folder, *, idle):
            assert not idle
            folders.append(folder)
            yield SimpleNamespace(
                log=log, stdin=io.BytesIO(), stop=lambda _: status, wait=lambda _: work(folder)
            )

        monkeypatch.setattr(deliveries, "waiting_run", child)
        return folders

    return script


def test_a_refusal_is_kept_and_said_again(children):
    said = "4 tasks\nerror: no such operator\nhint: write another\n"
    folders = children(lambda _: True, 2, said)
    x = torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            torch._dynamo.reset()
            compiled = torch.compile(lambda value: value * 2.0, backend=chameleon)
            torch.testing.assert_close(compiled(x), x * 2.0)
    assert len(folders) == 1
    told = "chameleon run ended with status 2: no such operator; hint: write another"
    assert _stays(logs) == [told, told]


def test_a_refused_import_starts_no_run(cache, children):
    folders = children(Mock(side_effect=AssertionError("a run was started")), 0)
    net, x = nn.Conv2d(3, 4, 3).double(), torch.randn(1, 3, 8, 8, dtype=torch.float64)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(net, backend=chameleon)(x), net(x))
    assert len(folders) == 1
    reasons = _stays(logs)
    assert len(set(reasons)) == 1
    assert "in float64" in reasons[0]
    assert not list(cache.with_name("networks").glob("*"))


def test_an_unexpected_error_of_an_import_is_logged(children, monkeypatch):
    children(lambda _: True, 2, "error: the same error")
    monkeypatch.setattr(KeptNetwork, "keep_graph", Mock(side_effect=OverflowError("too deep")))
    with torch.no_grad(), capture_logs() as logs:
        torch.compile(lambda value: value * 2.0, backend=chameleon)(torch.ones(3))
    [entry] = [log for log in logs if log["event"] == "a graph is not kept for its run"]
    assert entry["reason"] == "too deep"


def test_records_that_cannot_be_used_are_reported(children):
    with capture_logs() as logs, torch.no_grad():
        shared_records._said("mine", Mock(side_effect=OSError("no folder")))
        [warning] = logs
        event = f"{warning['event']}      problem='{warning['problem']}'"
        children(lambda _: True, 2, f"1 task\n12:00:00 [warning  ] {event}\ndone\n")
        torch.compile(lambda value: value * 2.0, backend=chameleon)(torch.ones(3))
    [told] = [log for log in logs[1:] if log["log_level"] == "warning"]
    assert told == {**told, "event": warning["event"], "run": "problem='OSError: no folder'"}


def test_an_interrupted_delivery_leaves_nothing_kept(cache, children):
    children(Mock(side_effect=KeyboardInterrupt), 0)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        torch.compile(lambda value: value * 2.0, backend=chameleon)(torch.ones(3))
    assert not list(cache.with_name("networks").iterdir())
    assert not list(cache.glob("*/*/graph.pt2"))


def test_one_delivery_takes_the_process_that_was_started_early(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_run, "ChildProcess", lambda *_, **__: Mock())
    with waiting_run.started_early():
        [early] = waiting_run._early
        assert waiting_run.waiting_run(tmp_path, idle=True) is not early
        assert waiting_run.waiting_run(tmp_path) is early
        assert waiting_run.waiting_run(tmp_path) is not early
    assert not early.kill.called
    with waiting_run.started_early():
        [unused] = waiting_run._early
    assert unused.kill.called


def test_two_that_want_one_network_deliver_it_once(children):
    def deliver(folder):
        """The result is there, and the run goes on with its report."""
        (folder / "run" / "network").mkdir(parents=True)
        (folder / "run" / "network" / "manifest.json").touch()
        (folder / "run" / "best.json").touch()
        return False

    folders = children(deliver, -signal.SIGTERM)
    both = [deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=None) for _ in range(2)]
    threads = [threading.Thread(target=delivery.folder) for delivery in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(folders) == 1
    assert not [*folders[0].glob("*.pt2")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "soon://records") for name in ("mode", "second", "seconds", "records")),
        *(("seconds", value) for value in (0, -1.0, float("inf"), float("nan"))),
    ],
)
def test_options_that_are_none_are_refused(name, value):
    with pytest.raises(ConfigError, match=r"the backend chameleon") as refused:
        chameleon(DOUBLED, [torch.ones(3)], options={name: value})
    assert "Attribute(" not in str(refused.value)


def test_digests_tell_weights_and_shapes_apart():
    graph = torch.fx.symbolic_trace(lambda x, w: x * w)
    x, w = torch.ones(3), torch.ones(3)
    digest = deliveries.digest_of(graph, [x, w], [1])
    assert digest == deliveries.digest_of(graph, [x + 1.0, w.clone()], [1])
    others = [([x, w + 1.0], [1]), ([torch.ones(4), w], [1]), ([x, w], []), ([x.double(), w], [1])]
    others += [([torch.ones(6)[::2], w], [1]), ([x, torch.ones(6)[::2]], [1])]
    assert len({digest, *(deliveries.digest_of(graph, *other) for other in others)}) == 7


def test_functions_of_one_name_have_networks_of_their_own():
    digests = []

    def note(graph, arguments, *_, **__):
        digests.append(deliveries.Delivery(graph, arguments, [], seconds=None)._home.name)
        return graph

    for slope in (2.0, 3.0, 2.0):
        torch._dynamo.reset()
        function = _unseen(lambda x, k=slope: torch.where(x > 0.0, x, x * k))
        torch.compile(lambda x, f=function: f(x) + 1.0, backend=note)(torch.ones(3))
    assert digests[0] == digests[2] != digests[1]


def test_each_record_database_has_its_own_networks_and_refusals(monkeypatch):
    folders = set()
    for own, shared in [(None, ""), (None, "a"), ("none", "a"), ("a", "b"), ("b", "")]:
        monkeypatch.setenv("CHAMELEON_RECORDS", shared)
        folders.add(
            deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=None, records=own)._folder
        )
    assert len(folders) == 4


def test_other_threads_compute_but_do_not_trace_while_a_graph_is_exported(monkeypatch):
    called = torch.compile(lambda x: x * 2.0, backend="eager")
    called(torch.ones(3))
    states = []

    def note():
        free = compile_lock.acquire(blocking=False)
        # Calls and ``torch.compile`` do what they do outside of an export.
        compiled = torch.compile(torch.neg, backend="eager") is not torch.neg
        states.append(
            (free, compiled, torch.compiler.is_exporting(), called(torch.ones(3)).sum().item())
        )

    def export(*_, **__):
        with _compiling_state_context():
            thread = threading.Thread(target=note)
            thread.start()
            thread.join()
            states.append(torch.compiler.is_exporting())
        raise NotImplementedError

    monkeypatch.setattr(torch.export, "export", export)
    known = torch.compiler.is_exporting
    with pytest.raises(deliveries.StaysError, match="cannot export it"):
        deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=None).prepare()
    assert states == [(False, True, False, 6.0), True]
    assert torch.compiler.is_exporting is known


UNUSED = "tvm", "onnx", "pandas", "yaml", "cattrs", "chameleon_networks.importers"


def test_a_graph_is_rewritten_once_for_its_check_and_its_import(tmp_path, monkeypatch):
    rewrite = Mock(side_effect=decompositions.with_decompositions)
    monkeypatch.setattr(decompositions, "with_decompositions", rewrite)
    program = graph_exports.exported(DOUBLED, [torch.ones(3)], ())
    torch.export.save(program, tmp_path / "graph.pt2")
    forget = graph_exports.kept_program(tmp_path / "graph.pt2", program)
    assert forget is not None, "the graph was imported"
    forget()
    assert rewrite.call_count == 1


def test_the_backend_imports_nothing_that_only_a_first_process_needs(run_python):
    program = "import sys, chameleon_networks.backends.torch_graphs; print(*sys.modules)"
    assert not [name for name in run_python(program).split() if name.startswith(UNUSED)]


def test_a_waiting_run_imports_no_rich_tracebacks(run_python):
    program = "import sys, chameleon_networks.backends.waiting_run as child\n"
    program += "list(map(__import__, child._IMPORTS)); print('rich' in sys.modules)"
    assert run_python(program) == "False\n"


def test_torch_finds_the_backend_by_its_name():
    file = EXAMPLES.parent / "packages" / "chameleon-networks" / "pyproject.toml"
    assert '[project.entry-points.torch_dynamo_backends]\nchameleon = "' in file.read_text()


@pytest.mark.long
@pytest.mark.usefixtures("eager_is_slow")
def test_one_call_compiles_a_pipeline_of_hugging_face():
    pytest.importorskip("transformers")
    example = runpy.run_path(str(EXAMPLES / "huggingface_pipeline.py"))
    classify, texts = example["classifier"](), ["today is a good day", "a bad day"]
    before = classify(texts, **example["PADDED"])
    inputs = classify.tokenizer(texts[0], return_tensors="pt", **example["PADDED"])
    with capture_logs() as logs:
        classify.model = backends.compile(classify.model, dict(inputs))
        after = classify(texts, **example["PADDED"])
    assert isinstance(classify.model, nn.Module)
    assert not _stays(logs)
    for old, new in zip(before, after, strict=True):
        assert new["label"] == old["label"]
        assert new["score"] == pytest.approx(old["score"], abs=1e-5)
