"""``torch.compile(backend="chameleon")`` gives torch's answers; some graphs stay torch's."""

import runpy
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks import _backends as backends
from chameleon_networks._backends import graph_deliveries as deliveries
from chameleon_networks._backends import torch_graphs as backend
from chameleon_networks._backends.torch_graphs import CompiledGraph, chameleon
from marks import full
from structlog.testing import capture_logs
from torch import nn
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

from .networks import DOUBLE, DOUBLED, Net, Network, loads, stays, unseen

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.usefixtures("cache")


def _attention(x):
    """Dropout of a network that is not trained, and attention that drops nothing."""
    x = nn.functional.dropout(x[None], 0.5, training=False)
    return nn.functional.scaled_dot_product_attention(x, x, x)


def _windows(x):
    """Windows whose number torch computes from sizes."""
    return x.view(6, torch.div(x.shape[1], 4, rounding_mode="trunc"), 4).sum(-1)


def _moved_in_a_branch(x):
    moved = lambda x: x.as_strided((2,), (1,), 0) * 2.0  # noqa: E731
    return torch.cond(x.sum() > 0.0, moved, lambda x: x[0, :2] * 3.0, (x,))


def _dropped_in_a_branch(x):
    dropped = lambda x: nn.functional.dropout(x, 0.5)  # noqa: E731
    return torch.cond(x.sum() > 0.0, dropped, lambda x: x * 3.0, (x,))


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


WEIGHT = nn.Parameter(torch.ones(8))
CASES = {
    "argument": (lambda x: x.mul_(2.0) + 1.0, "changes a tensor in place"),
    "running mean": (nn.BatchNorm1d(8), "changes a tensor in place"),
    "views": (lambda x: (x.view(-1), x[1:]), "views of arguments"),
    "dropout": (nn.Dropout(0.5), "draws random numbers"),
    "dropout in a branch": (_dropped_in_a_branch, "draws random numbers"),
    "branch of memory": (_moved_in_a_branch, "as_strided"),
    "gradients": (torch.enable_grad()(lambda x: WEIGHT * x), "gradients of an output"),
    "custom operator": (lambda x: _doubled(x) + 1.0, "custom operator chameleon_tests.doubled"),
    "custom overload": (lambda x: SCALED(x, 2.0), "custom operator chameleon_tests.scaled.by"),
    "custom inside": (unseen(_doubled), "chameleon_tests.doubled"),
    "empty": (lambda x: (x[:, :0] * 2.0, x + 1.0), "is empty"),
    # Nothing but the network itself, which is never there in this test.
    "inside": (lambda x: (x + 1.0).relu_(), "cannot be used"),
    "attention": (_attention, "cannot be used"),
    "composite": (lambda x: SCALED(x) + 1.0, "cannot be used"),
    "windows": (_windows, "cannot be used"),
    "checked matrix": (lambda x: torch.linalg.inv(x[:, :6]), "cannot be used"),
}


@pytest.mark.full
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
    [message] = stays(logs)
    assert reason in message


def test_gradients_and_open_sizes_stay_torchs(no_delivery):
    net = Net().eval()
    with capture_logs() as logs:
        compiled = torch.compile(net, backend=chameleon, dynamic=True)
        compiled(torch.randn(3, 8))["sum"].sum().backward()
        assert net.first.weight.grad is not None
        with torch.no_grad():
            x = torch.randn(5, 8)
            torch.testing.assert_close(
                torch.compile(net, backend=chameleon, dynamic=True)(x), net(x)
            )
    reasons = stays(logs)
    assert len(reasons) == 2
    assert all("size is left open" in reason or "gradients" in reason for reason in reasons)


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
    assert stays(logs) == ["weights have changed since it was compiled"]


COPIES = {
    "counted": lambda weight, numbers: weight.copy_(numbers),
    "data": lambda weight, numbers: weight.data.copy_(numbers),
    "other data": lambda weight, numbers: setattr(weight, "data", numbers.clone()),
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_an_adapter_that_is_switched_back_and_forth_gets_networks(
    copy, weighted_networks, monkeypatch
):
    monkeypatch.setattr(backend, "_COMPARED_CALLS", frozenset())
    networks = {name: Network(lambda x, n=float(name): (n * x,)) for name in ("1", "2", "3")}
    (graph, load), x, weight = weighted_networks(networks), torch.ones(3), torch.full((3,), 1.0)
    with torch.no_grad(), capture_logs() as logs:
        for number in (1, 2, 1, 2, 1, 2, 1, 3):
            copy(weight, torch.full((3,), float(number)))
            for _ in range(3):
                torch.testing.assert_close(graph(weight, x), (number * x,))
        assert load.call_count == 2
        assert [len(network.seen) for network in networks.values()] == [12, 6, 0]
        for number in range(10, 12 + backend._UNKNOWN_VERSIONS):
            copy(weight, torch.full((3,), float(number)))
            torch.testing.assert_close(graph(weight, x), (number * x,))
        copy(weight, torch.full((3,), 1.0))
        torch.testing.assert_close(graph(weight, x), (x,))
    assert len(networks["1"].seen) == 12
    assert stays(logs)[-2:] == [backend._CHANGED, "weights change again and again"]


def test_a_change_of_a_weight_within_other_memory_is_noticed(delivered):
    """Between its rows lie numbers of others, whose changes mean nothing."""
    memory, x = torch.ones(64, 1024), torch.randn(3, 8)
    memory[0] = 0.0
    net = nn.Linear(8, 64, bias=False)
    net.weight.data = memory[:, 4:12]
    kept = net.weight.detach().clone()
    network = delivered(lambda x: (x @ kept.t(),))
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        compiled(x)
        memory.data[:, 12:] = 3.0
        torch.testing.assert_close(compiled(x), net(x))
        assert len(network.seen) == 2
        net.weight.data.mul_(3.0)
        torch.testing.assert_close(compiled(x), net(x))
    assert stays(logs) == ["weights have changed since it was compiled"]


def test_a_conversion_frees_the_memory_of_the_weights(delivered):
    delivered()
    net, x = nn.Linear(4, 4), torch.randn(3, 4)
    memory = StorageWeakRef(net.weight.untyped_storage())
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad():
        compiled(x)
        net.bfloat16()
        compiled(x.bfloat16())
    assert memory.expired()


def test_torch_computes_tangents(delivered):
    network = delivered()
    compiled, x = torch.compile(lambda x: x * 2.0, backend=chameleon), torch.ones(3)
    with torch.no_grad():
        compiled(x)
        with forward_ad.dual_level():
            answer = forward_ad.unpack_dual(compiled(forward_ad.make_dual(x, x * 3.0)))
        torch.testing.assert_close(answer.tangent, x * 6.0)
        seen = len(network.seen)
        compiled(x)
    assert len(network.seen) == seen + 1


def test_instances_of_a_layer_have_networks_of_their_own(weighted_networks, monkeypatch):
    """A graph break inside a repeated layer makes torch call one graph for all instances."""
    monkeypatch.setattr(backend, "_COMPARED_CALLS", frozenset())
    weights = {str(n): torch.full((3,), float(n)) for n in range(1, backend._INSTANCES + 3)}
    networks = {name: Network(lambda x, n=float(name): (n * x,)) for name in weights}
    (graph, _), x = weighted_networks(networks), torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(backend._INSTANCES):  # each round adds a network
            for weight in weights.values():
                torch.testing.assert_close(graph(weight, x), (weight * x,))
        computed = {name: len(network.seen) for name, network in networks.items()}
        weights["1"].add_(1.0)
        for weight in weights.values():
            torch.testing.assert_close(graph(weight, x), (weight * x,))
    assert [count > 0 for count in computed.values()] == [True] * backend._INSTANCES + [False] * 2
    later = [len(network.seen) - computed[name] for name, network in networks.items()]
    assert later == [0] + [1] * (backend._INSTANCES - 1) + [0] * 2
    assert stays(logs) == [
        *[backend._OTHER] * (backend._INSTANCES - 1),
        f"more than {backend._INSTANCES} sets of weights share it",
        "weights have changed since it was compiled",
    ]


def test_weights_that_each_call_replaces_are_compiled_once(weighted):
    (graph, load), x = weighted, torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        for number in range(2, 6):
            torch.testing.assert_close(graph(torch.tensor(float(number)), x), (number * x,))
    assert load.call_count == 1
    assert stays(logs) == [backend._OTHER]


def test_weights_that_are_gone_give_their_place_to_others(weighted_networks):
    """A model may be made again and again, and some weights come only once."""
    numbers = range(1, 3 * backend._INSTANCES)
    networks = {str(n): Network(lambda x, n=n: (n * x,)) for n in numbers}
    (graph, load), x = weighted_networks(networks), torch.ones(3)
    weights, often = {}, []
    with torch.no_grad(), capture_logs() as logs:
        for number in numbers:
            weights[number % 3] = weight = torch.full((3,), float(number))
            calls = 1 if number % 5 == 0 else 3
            often += [str(number)] * (calls > 1)
            for _ in range(calls):
                torch.testing.assert_close(graph(weight, x), (weight * x,))
            if calls == 1:
                del weights[number % 3]
            del weight
        count = load.call_count
        for number in numbers[-3:]:
            weight = weights[number % 3]
            torch.testing.assert_close(graph(weight, x), (weight * x,))
    assert [name for name, network in networks.items() if network.seen] == often
    assert load.call_count == count, "weights that stay keep their networks"
    assert set(stays(logs)) == {backend._OTHER}


def test_an_interrupted_first_call_begins_again(tmp_path, eager_is_slow, monkeypatch):
    loads(monkeypatch, run=Network())
    folder = Mock(side_effect=[KeyboardInterrupt, tmp_path / "run" / "network"])
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: folder())
    graph = CompiledGraph(DOUBLE, [], backend.BackendOptions())
    with pytest.raises(KeyboardInterrupt):
        graph(torch.ones(3))
    graph(torch.ones(3))
    assert graph.computes


def test_weights_may_be_swapped(weighted):
    """torch swaps no tensors that have weak references."""
    (graph, _), x = weighted, torch.ones(3)
    weight = torch.tensor(2.0)
    with torch.no_grad():
        for number in (2.0, 2.0):
            torch.testing.assert_close(graph(weight, x), (number * x,))
        torch.utils.swap_tensors(weight, torch.tensor(3.0))
        torch.testing.assert_close(graph(weight, x), (3.0 * x,))


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


def test_outputs_that_are_views_of_arguments_stay_views(exported):
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
    assert not stays(logs)


def test_a_tensor_that_was_made_in_inference_mode_may_change(exported):
    net, x = nn.Linear(8, 4), torch.randn(3, 8)
    with torch.inference_mode(), capture_logs() as logs:
        net.register_buffer("kept", torch.ones(4))
        net.register_forward_hook(lambda module, _, output: output * module.kept)
        compiled = torch.compile(net, backend=chameleon)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), net(x))
            net.kept.mul_(3.0)
    assert not stays(logs)


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
    [reason] = stays(logs)
    assert ("autocast" if cast else f"in {given}") in reason


@pytest.mark.parametrize(
    ("step", "error", "reason"),
    [
        (None, None, "Not a directory"),
        full("save", RuntimeError("PytorchStreamWriter failed"), "PytorchStreamWriter failed"),
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
    [given] = stays(logs)
    assert reason in given


def test_a_network_that_fails_later_leaves_torchs_code(delivered, monkeypatch):
    network = delivered()
    compiled, x = torch.compile(lambda value: value * 2.0, backend=chameleon), torch.ones(3)
    with torch.no_grad(), capture_logs() as logs:
        compiled(x)
        monkeypatch.setattr(network, "run", Mock(side_effect=MemoryError))
        for _ in range(2):
            torch.testing.assert_close(compiled(x), x * 2.0)
    assert stays(logs) == ["its network failed: MemoryError"]


def test_a_network_computes_beside_a_view_of_a_parameter(delivered):
    delivered()
    net = nn.Linear(3, 2)
    net.forward = lambda x: (net.weight[0], x * 2.0)
    compiled = torch.compile(net, backend=chameleon)
    with torch.no_grad(), capture_logs() as logs:
        for _ in range(2):
            view, product = compiled(torch.ones(3))
    assert view.data_ptr() == net.weight.data_ptr()
    torch.testing.assert_close(product, torch.full((3,), 2.0))
    assert not stays(logs)


def test_views_of_arguments_are_torchs(exported):
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
    [reason] = stays(logs)
    assert "as_strided" in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "soon://records") for name in ("mode", "second", "seconds", "records")),
        *(("seconds", value) for value in (0, -1.0, float("inf"), float("nan"), 10**400)),
    ],
)
def test_options_that_are_none_are_refused(name, value):
    with pytest.raises(ConfigError, match=r"the backend chameleon") as refused:
        chameleon(DOUBLED, [torch.ones(3)], options={name: value})
    assert "Attribute(" not in str(refused.value)


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
    assert not stays(logs)
    for old, new in zip(before, after, strict=True):
        assert new["label"] == old["label"]
        assert new["score"] == pytest.approx(old["score"], abs=1e-5)
