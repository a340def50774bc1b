"""A network computes a graph of torch only if its answers are right and it is faster."""

import json
import threading
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from chameleon_networks._backends import graph_checks
from chameleon_networks._backends import graph_deliveries as deliveries
from chameleon_networks._backends import torch_graphs as backend
from chameleon_networks._backends.graph_checks import Weights
from chameleon_networks._backends.torch_graphs import CompiledGraph, chameleon
from structlog.testing import capture_logs
from torch.multiprocessing.reductions import StorageWeakRef

from .networks import DOUBLE, PRODUCT, Network, loads, stays

pytestmark = pytest.mark.usefixtures("cache")


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
    [message] = stays(logs)
    assert reason in message


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


def test_a_refusal_of_tuning_leaves_the_predicted_network(tmp_path, eager_is_slow, monkeypatch):
    def refused(delivery, **_):
        if delivery._seconds is not None:
            raise deliveries.FallbackError("an earlier attempt failed")
        return tmp_path / "predicted" / "network"

    for method in ("prepare", "folder"):
        monkeypatch.setattr(deliveries.Delivery, method, refused)
    loads(monkeypatch, predicted=Network())
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions(mode="background"))
    with capture_logs() as logs:
        graph(torch.ones(3))
        for _ in range(2400):
            if not graph._awaits:
                break
            time.sleep(0.1)
        graph(torch.ones(3))
    assert graph.computes
    assert not stays(logs)


def test_tuning_that_fails_while_a_network_is_loaded_takes_nothing_away(
    tmp_path, eager_is_slow, monkeypatch
):
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._has_started, graph._inputs, graph._folder = True, [0], tmp_path / "network"
    predicted = Mock(folder=lambda nice: graph._folder)
    tuned = Mock(folder=Mock(side_effect=OSError))
    tuning = threading.Thread(target=graph._tune_beside, args=(predicted, tuned))

    def load(*_, **__):
        tuning.start()
        tuning.join(0.2)
        return Network()

    monkeypatch.setattr(backend, "load", load)
    graph(torch.ones(3))
    tuning.join()
    assert graph.computes


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


def test_a_network_with_other_answers_is_not_tried_again(tmp_path, eager_is_slow, monkeypatch):
    load = loads(monkeypatch, wrong=Network(lambda x: (x.abs() * 2.0,)))
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._has_started = graph._awaits = True
    graph._inputs, graph._folder = [0], tmp_path / "wrong" / "network"
    for first in (-1.0, *[1.0] * 20):
        graph(torch.tensor([first, 2.0]))
    assert load.call_count == 1
    assert not graph.computes


def test_a_wrong_answer_that_a_comparison_finds_is_not_returned(delivered):
    """It may be wrong from one call on, as after a change of weights that goes unnoticed."""
    network = delivered()
    graph, x = CompiledGraph(DOUBLE, [], backend.BackendOptions()), torch.ones(3)
    answers = [graph(x)]
    network.function = lambda x: (x * 3.0,)
    with capture_logs() as logs:
        answers += [graph(x) for _ in range(8)]
    wrong = [number for number, (answer,) in enumerate(answers, 1) if answer[0] != 2.0]
    assert wrong == [2, 3], "call 4 compares"
    assert "other answers" in " ".join(stays(logs))
    assert not graph.computes


def test_a_tuned_network_gets_another_chance(tmp_path, monkeypatch):
    tuned = Network()
    loads(monkeypatch, predicted=Network(), tuned=tuned)
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._has_started, graph._inputs = True, [0]
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


@pytest.mark.parametrize("names", [["slow"], ["predicted", "slow"]], ids=["torch", "predicted"])
def test_a_network_that_loses_is_loaded_and_reported_once(names, tmp_path, monkeypatch):
    """It loses every comparison with torch's code, or with the network that computes."""
    networks = {name: Network() for name in names}
    load = loads(monkeypatch, **networks)
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    graph._has_started, graph._inputs = True, [0]

    def seconds(_, network, *__):
        return (2.0 if network is networks["slow"] else 0.5), 1.0

    def clocked(function, arguments):
        return function(*arguments), 1.0 if function is DOUBLE else 2.0

    monkeypatch.setattr(CompiledGraph, "_seconds", seconds)
    monkeypatch.setattr(backend, "_clocked", clocked)
    with capture_logs() as logs:
        for name in names:
            graph._folder = tmp_path / name / "network"
            graph(torch.ones(3))
        calls = len(networks["slow"].seen)
        for _ in range(backend._LAST_COMPARED):
            graph(torch.ones(3))
    assert load.call_count == len(names)
    assert len(networks["slow"].seen) >= calls + len(backend._COMPARED_CALLS)
    assert len([log for log in logs if "slower" in log.get("reason", "")]) == 1
    assert graph._candidate is None


def test_a_change_of_weights_is_no_comparison(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    loads(monkeypatch, run=Network())
    graph = CompiledGraph(PRODUCT, [0], backend.BackendOptions())
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "run" / "network")
    weight, x = torch.tensor(2.0), torch.ones(3)
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (2.0, 1.0))
    graph(weight, x)
    monkeypatch.undo()
    loads(monkeypatch, run=Network())
    weight.add_(1.0)
    for _ in range(4):
        graph(weight, x)
    assert not graph.computes
    [share] = json.loads((tmp_path / "run" / "comparisons.json").read_text(encoding="utf-8"))
    assert share == 2.0


@pytest.mark.parametrize(
    "damaged", ["[NaN]", "[" * 100_000, f"[1{'0' * 400}]", '"0123"', '{"1": 1}', "[-1.0, 0]"]
)
def test_damaged_comparisons_count_as_none(damaged, tmp_path):
    (tmp_path / "comparisons.json").write_text(damaged, encoding="utf-8")
    comparisons = backend.Comparisons(tmp_path / "network")
    assert comparisons.share == np.inf
    comparisons.add(1.0, 2.0)
    assert backend.Comparisons(tmp_path / "network").share == 0.5


def test_weights_are_compared_bit_by_bit():
    pairs = ((np.nan, 0.0), (np.inf, np.finfo(np.float32).max), (1 << 24, (1 << 24) + 1))
    for before, after in pairs:
        weight = torch.tensor([before])
        graphs = [Weights([weight], [0]) for _ in range(2)]
        assert all(weights.are_same([weight]) for weights in graphs)
        weight.numpy()[0] = after
        assert not any(weights.are_same([weight]) for weights in graphs)


def test_a_network_keeps_no_weights_that_are_gone(weighted):
    """Their memory may belong to other weights later, which differ at a place without a sample."""
    (graph, _), x = weighted, torch.ones(64)
    memory = np.full(64, 2.0, np.float32)
    weight = torch.from_numpy(memory)
    for _ in range(2):
        graph(weight, x)
    assert graph.computes
    storage = StorageWeakRef(weight.untyped_storage())
    del weight
    assert storage.expired()
    memory[1] = 3.0
    weight = torch.from_numpy(memory)
    torch.testing.assert_close(graph(weight, x), (weight * x,))


def test_the_memory_of_weights_stays_while_it_is_read(monkeypatch):
    weight = torch.ones(64)
    weights, memory, bits = Weights([weight], [0]), StorageWeakRef(weight.untyped_storage()), []

    def read(samples):
        weight.data = torch.zeros(64)  # in another thread
        graph_checks._sample(weight)
        bits.append(memory.expired())
        return graph_bits(samples)

    graph_bits = graph_checks._bits
    monkeypatch.setattr(graph_checks, "_bits", read)
    assert weights.are_same([weight])
    assert bits == [False]
    assert memory.expired()
    assert not weights.are_same([weight])
