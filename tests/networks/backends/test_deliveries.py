"""The networks of torch's graphs are delivered into the cache, and found there again."""

import json
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from chameleon_core._fallbacks import STRICT
from chameleon_core._loop.start import shared_records
from chameleon_networks._backends import graph_deliveries as deliveries
from chameleon_networks._backends import graph_exports, idle_run
from chameleon_networks._backends.torch_graphs import CompiledGraph, chameleon
from chameleon_networks._evaluation.network_cache import NetworkCache
from chameleon_networks._importers.torch.lowering import decompositions
from structlog.testing import capture_logs
from torch import nn
from torch._dynamo.convert_frame import compile_lock
from torch._export.utils import _compiling_state_context

from .networks import DOUBLED, Net, stays, unseen

pytestmark = pytest.mark.usefixtures("cache")


def test_a_network_computes_what_torch_does(cache, eager_is_slow, monkeypatch):
    net, x = Net().eval(), torch.randn(3, 8)
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        torch.testing.assert_close(compiled(x), net(x))
        assert not stays(logs)
        assert [log["event"] for log in logs][-1] == "graph_computed_by_network"
        # This process has imported the graph and computed torch's answers for the run.
        [result] = cache.glob("*/predicted*/run/best.json")
        assert json.loads(result.read_text())["network"]["reference_day"] is not None
        assert not list(cache.with_name("networks").iterdir())
        other = torch.randn(3, 8)
        monkeypatch.setattr(CompiledGraph, "_answer_and_adopt", None)
        torch.testing.assert_close(compiled(other), net(other))
        # In a new process the network is there.
        monkeypatch.undo()
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))
        monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (1.0, 2.0))
        monkeypatch.setattr(deliveries, "idle_run_process", None)
        monkeypatch.setitem(sys.modules, "chameleon_networks._backends.graph_exports", None)
        torch._dynamo.reset()
        again = torch.compile(net, backend=chameleon)
        torch.testing.assert_close(again(x), net(x))
        torch.testing.assert_close(again(other), net(other))
        net.first.weight.mul_(2.0)
        torch.testing.assert_close(again(other), net(other))
    assert [reason for reason in stays(logs) if "weights have changed" in reason]


@pytest.mark.full
def test_a_damaged_network_is_compiled_again(cache, eager_is_slow):
    net, x = Net().eval(), torch.randn(3, 8)

    def events():
        torch._dynamo.reset()
        with torch.no_grad(), capture_logs() as logs:
            torch.testing.assert_close(torch.compile(net, backend=chameleon)(x), net(x))
        return [log["event"] for log in logs]

    assert events()[-1] == "graph_computed_by_network"
    [library] = cache.glob("*/predicted*/run/network/network.so")
    library.unlink()
    library.write_bytes(b"cut off")
    assert events()[-1] == "graph_computed_by_torch"
    assert events()[-1] == "graph_computed_by_network"


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


@pytest.mark.full
def test_the_graph_of_a_killed_process_is_removed(cache, children, run_python):
    """The graph of a process that lives stays."""
    children(Mock(side_effect=KeyboardInterrupt), 0)
    program = (
        "import os, torch; from chameleon_networks._backends.graph_deliveries import Delivery;"
    )
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
    assert stays(logs) == [told, told]


def test_a_refused_import_starts_no_run(cache, children):
    folders = children(Mock(side_effect=AssertionError("a run was started")), 0)
    net, x = nn.Conv2d(3, 4, 3).double(), torch.randn(1, 3, 8, 8, dtype=torch.float64)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(net, backend=chameleon)(x), net(x))
    assert len(folders) == 1
    reasons = stays(logs)
    assert len(set(reasons)) == 1
    assert "in float64" in reasons[0]
    assert not list(cache.with_name("networks").glob("*"))


def test_an_unexpected_error_of_an_import_is_logged(children, monkeypatch):
    children(lambda _: True, 2, "error: the same error")
    monkeypatch.setattr(NetworkCache, "keep_graph", Mock(side_effect=OverflowError("too deep")))
    with torch.no_grad(), capture_logs() as logs:
        torch.compile(lambda value: value * 2.0, backend=chameleon)(torch.ones(3))
    [entry] = [log for log in logs if log["event"] == "graph_not_kept"]
    assert entry["reason"] == "too deep"


def test_records_that_cannot_be_used_are_reported(children, monkeypatch):
    monkeypatch.delenv(STRICT)
    with capture_logs() as logs, torch.no_grad():
        shared_records._call_or_warn("mine", Mock(side_effect=OSError("no folder")))
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
    monkeypatch.setattr(idle_run, "ChildProcess", lambda *_, **__: Mock())
    with idle_run.early_process():
        [early] = idle_run._early
        assert idle_run.idle_run_process(tmp_path, idle=True) is not early
        assert idle_run.idle_run_process(tmp_path) is early
        assert idle_run.idle_run_process(tmp_path) is not early
    assert not early.kill.called
    with idle_run.early_process():
        [unused] = idle_run._early
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


def test_no_graph_with_other_weights_is_exported_again(monkeypatch):
    """Its network would get the name of the earlier weights."""
    run = Mock(side_effect=AssertionError("a run was started"))
    monkeypatch.setattr(deliveries, "idle_run_process", run)
    graph, weight = torch.fx.symbolic_trace(lambda w, x: (w * x,)), torch.ones(3)
    delivery = deliveries.Delivery(graph, [weight, torch.ones(3)], [0], seconds=5.0)
    delivery.prepare()
    delivery._program.unlink()
    with pytest.raises(AssertionError, match="a run was started"):
        delivery.folder(nice=True)
    weight.mul_(2.0)
    with pytest.raises(deliveries.FallbackError, match="weights have changed"):
        delivery.folder(nice=True)


def test_digests_tell_weights_and_shapes_apart(monkeypatch):
    graph = torch.fx.symbolic_trace(lambda x, w: x * w)
    x, w = torch.ones(3), torch.ones(3)
    digest = deliveries.digest_of(graph, [x, w], [1])
    assert digest == deliveries.digest_of(graph, [x + 1.0, w.clone()], [1])
    others = [([x, w + 1.0], [1]), ([torch.ones(4), w], [1]), ([x, w], []), ([x.double(), w], [1])]
    others += [([torch.ones(6)[::2], w], [1]), ([x, torch.ones(6)[::2]], [1])]
    digests = [digest, *(deliveries.digest_of(graph, *other) for other in others)]
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    digests.append(deliveries.digest_of(graph, [x, w], [1]))
    assert len(set(digests)) == 8


def test_functions_of_one_name_have_networks_of_their_own():
    digests = []

    def note(graph, arguments, *_, **__):
        digests.append(deliveries.Delivery(graph, arguments, [], seconds=None)._home.name)
        return graph

    for slope in (2.0, 3.0, 2.0):
        torch._dynamo.reset()
        function = unseen(lambda x, k=slope: torch.where(x > 0.0, x, x * k))
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
    with pytest.raises(deliveries.FallbackError, match="cannot export it"):
        deliveries.Delivery(DOUBLED, [torch.ones(3)], [], seconds=None).prepare()
    assert states == [(False, True, False, 6.0), True]
    assert torch.compiler.is_exporting is known


UNUSED = "tvm", "onnx", "pandas", "yaml", "cattrs", "chameleon_networks._importers"


def test_a_graph_is_rewritten_once_for_its_check_and_its_import(tmp_path, monkeypatch):
    rewrite = Mock(side_effect=decompositions.run_decompositions)
    monkeypatch.setattr(decompositions, "run_decompositions", rewrite)
    program = graph_exports.exported(DOUBLED, [torch.ones(3)], ())
    torch.export.save(program, tmp_path / "graph.pt2")
    forget = graph_exports.kept_program(tmp_path / "graph.pt2", program)
    assert forget is not None, "the graph was imported"
    forget()
    assert rewrite.call_count == 1


@pytest.mark.full
def test_the_backend_imports_nothing_that_only_a_first_process_needs(run_python):
    program = "import sys, chameleon_networks._backends.torch_graphs; print(*sys.modules)"
    assert not [name for name in run_python(program).split() if name.startswith(UNUSED)]


@pytest.mark.full
def test_an_idle_run_imports_no_rich_tracebacks(run_python):
    program = "import sys, chameleon_networks._backends.idle_run as child\n"
    program += "sys.stdin = open('/dev/null'); child.wait(); print('rich' in sys.modules)"
    assert run_python(program) == "False\n"
