"""The expected errors of algorithms are those of a layer's own weights and inputs."""

import itertools
import json
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from chameleon_networks._checks.check import CheckReport
from chameleon_networks._checks.worker import NetworkCheck
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._evaluation.special_inputs import special_inputs
from chameleon_networks._evaluation.verify import samples_of
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.cancellations import (
    cancellations_of,
    digest_of,
    growth,
    rounded,
    sums_of,
)
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import TorchNetwork
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_tvm._spaces.template.algorithms import rounding_error
from chameleon_tvm._spaces.template.options import (
    MAX_ERROR,
    SPLIT_PARTS,
    WEIGHT_DTYPES,
    WINOGRAD_TILES,
    TemplateOptions,
)
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm._spaces.template.split_algorithm import split_error
from chameleon_tvm._spaces.template.winograd_transforms import SAFETY, transforms, winograd_error
from chameleon_tvm._types import STORAGE
from chameleon_tvm.api import Conv2dSpec
from computing import ARM, X86, few, resolved
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

SAPPHIRE = resolved(f"{X86}sapphirerapids -num-cores=2")
FLOAT32_SUMS = 4 * 2.0**-23
SPEC = Conv2dSpec(input=[1, 32, 10, 10], filters=16, kernel=3, layout="NHWC")


def zero_sum(weights, axis=(1, 2, 3)):
    return weights - weights.mean(axis=axis, keepdims=True)


WEIGHTS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "positive": lambda rng, shape: np.abs(rng.standard_normal(shape)),
    "heavy": lambda rng, shape: rng.standard_t(3, shape),
    "zero sum": lambda rng, shape: zero_sum(rng.standard_normal(shape)),
    "heavy zero sum": lambda rng, shape: zero_sum(rng.standard_t(3, shape)),
    "zero sum of channels": lambda rng, shape: zero_sum(rng.standard_normal(shape), 1),
}
DATA = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "relu": lambda rng, shape: np.maximum(rng.standard_normal(shape), 0.0),
    "mean 10": lambda rng, shape: rng.standard_normal(shape) + 10.0,
    "mean 100": lambda rng, shape: rng.standard_normal(shape) + 100.0,
    "heavy": lambda rng, shape: rng.standard_t(3, shape),
    "means of channels": lambda rng, shape: (
        0.1 * rng.standard_normal(shape) + 10.0 * rng.standard_normal((1, shape[1], 1, 1))
    ),
    "the same noise in all channels": lambda rng, shape: (
        rng.standard_normal(shape) + 100.0 * rng.standard_normal((1, 1, *shape[2:]))
    ),
}


def drawn(weights, data, seed=0):
    """A layer's data and weights."""
    rng = np.random.default_rng(seed)
    made = DATA[data](rng, SPEC.input), WEIGHTS[weights](rng, SPEC.filter_shape)
    return tuple(array.astype(np.float32) for array in made)


def windows(data, size, step):
    """The windows of an image, shape (windows, channels, size, size)."""
    views = np.lib.stride_tricks.sliding_window_view(data[0], (size, size), (1, 2))
    moved = views[:, ::step, ::step].transpose(1, 2, 0, 3, 4)
    return moved.reshape(-1, *moved.shape[2:])


def parts_of(numbers, count):
    half, parts = STORAGE["bfloat16"], []
    for _ in range(count):
        part = half.real(half.stored(numbers)).astype(np.float32)
        parts.append(part.astype(np.float64))
        numbers = numbers - part
    return parts


def computed(name, data, weights):
    """The outputs of an algorithm, and exact ones, both as matrices."""
    filters = weights.reshape(len(weights), -1).T
    rows = windows(data, 3, 1).reshape(-1, len(filters))
    exact = rows.astype(np.float64) @ filters.astype(np.float64)
    if name == "direct":
        products = rows[:, :, None] * filters
        return np.add.accumulate(products, axis=1)[:, -1], exact
    if name in SPLIT_PARTS:
        count = SPLIT_PARTS[name]
        both = [list(enumerate(parts_of(one, count))) for one in (rows, filters)]
        pairs = [a @ b for i, a in both[0] for j, b in both[1] if i + j < count]
        return np.sum(pairs, axis=0), exact
    if name in WEIGHT_DTYPES:
        kind = STORAGE[WEIGHT_DTYPES[name]]
        stored = kind.real(kind.stored(filters)).astype(np.float64)
        return rows.astype(np.float64) @ stored, exact
    return winograd(WINOGRAD_TILES[name], data, weights)


def winograd(out, data, weights):
    matrices = transforms(out)
    tiles = windows(data, matrices.size, out)

    def outputs(dtype):
        b, a = matrices.data.astype(dtype), matrices.output.astype(dtype)
        u = (matrices.weights @ weights.astype(np.float64) @ matrices.weights.T).astype(dtype)
        products = np.einsum("tcij,ocij->toij", b @ tiles.astype(dtype) @ b.T, u)
        return a @ products @ a.T

    return outputs(np.float32), outputs(np.float64)


def measured(name, data, weights):
    got, exact = computed(name, data, weights)
    return np.abs(got - exact).max() / np.abs(exact).max()


def estimated(name, data, weights):
    """The estimate before it is rounded to a power of two."""
    products, detail = growth([sums_of(SPEC, data, weights)])
    if name in WINOGRAD_TILES:
        own = SimpleNamespace(cancellation=products, detail_cancellation=detail)
        return winograd_error(WINOGRAD_TILES[name], SPEC.input[1], own) / SAFETY
    if name in SPLIT_PARTS:
        return products * split_error(SPLIT_PARTS[name])
    return products * rounding_error(WEIGHT_DTYPES[name])


@given(
    st.sampled_from(["winograd2", "winograd4", "split3", "split6", "bfloat16_weights"]),
    st.sampled_from(list(WEIGHTS)),
    st.sampled_from(list(DATA)),
    st.integers(0, 100),
)
@few(150)
def test_an_estimate_is_near_the_error(name, weights, data, seed):
    layer = drawn(weights, data, seed)
    error, estimate = measured(name, *layer), estimated(name, *layer)
    # A few products or a few places decide the errors of a layer with heavy tails or noise.
    few_decide = "heavy" in weights or data in ("heavy", "the same noise in all channels")
    factor = 10.0 if few_decide else 5.0
    assert estimate <= factor * error
    # The sums of Winograd's algorithms are in float32, whose own errors grow less.
    assert error <= factor * estimate + FLOAT32_SUMS


@pytest.mark.parametrize("name", ["winograd2", "split3", "split6", "float16_weights"])
def test_estimates_grow_with_errors(name):
    _, weights = drawn("zero sum", "normal")
    data = np.random.default_rng(1).standard_normal(SPEC.input)
    layers = [(np.float32(data + mean), weights) for mean in (0.0, 10.0, 100.0, 1000.0)]
    for known in (measured, estimated):
        errors = [known(name, *layer) for layer in layers]
        assert all(3 * a < b for a, b in itertools.pairwise(errors))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("data", DATA)
def test_no_algorithm_with_large_errors_is_allowed(weights, data):
    layer = drawn(weights, data)
    products, detail = map(rounded, growth([sums_of(SPEC, *layer)]))
    spec = Conv2dSpec(
        **{**SPEC.arguments(), "cancellation": products, "detail_cancellation": detail}
    )
    names = algorithms_of(spec)
    direct = measured("direct", *layer)
    errors = {name: measured(name, *layer) for name in names if name != "direct"}
    assert "split6" in names
    assert all(error <= max(MAX_ERROR, 10 * direct) for error in errors.values())
    if data in ("normal", "relu", "heavy"):
        assert names == algorithms_of(SPEC)
        assert {"winograd4", "split3"} <= {*names}


def algorithms_of(spec):
    template = template_of(spec.task("t", SAPPHIRE), TemplateOptions())
    return [name for algorithm in template.algorithms for name in algorithm.names]


NETS = """
    import torch
    from torch import nn

    def edges():
        # Each filter of the first layer has the sum zero.
        network = nn.Sequential(
            nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 36, 32),
        )
        with torch.no_grad():
            first = network[0].weight
            first -= first.mean((1, 2, 3), keepdim=True)
        return network, torch.randn(1, 32, 8, 8)
"""


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(textwrap.dedent(NETS), encoding="utf-8")
    return lambda: TorchNetwork(TorchOptions(source=f"{path}:edges", layout="NHWC"))


def inputs_of(network):
    special = [one.inputs for one in special_inputs(network) if one.is_finite]
    return [*samples_of(network.samples)[:1], *special]


def test_a_layer_whose_products_cancel_is_a_task_of_its_own(edges):
    network = edges()
    fusions = prepared_network(network)[1]
    found = cancellations_of(fusions, network.graph, network.values, inputs_of(network))
    report = CheckReport(layout="NHWC", cancellations=found)
    frontend = NetworkFrontend(network)
    frontend.check(SAPPHIRE, 2, json.loads(json.dumps(report.to_json())))
    with capture_logs() as lines:
        first, second, last = frontend.tasks(SAPPHIRE)
    [grown] = [line["errors_grow"] for line in lines if line["event"] == "large_products_cancel"]
    assert grown == {first.name: first.arguments["cancellation"]}
    assert first.arguments["cancellation"] > 64
    assert not {"cancellation", "detail_cancellation"} & {*second.arguments, *last.arguments}
    chosen = [
        {name for own in template_of(task, TemplateOptions()).algorithms for name in own.names}
        for task in (first, second)
    ]
    assert "split3" not in chosen[0]
    assert {"split3", "winograd4"} <= chosen[1]
    # Later commands read the decisions of the run.
    decisions = frontend.decide(SimpleNamespace(target=SAPPHIRE))
    again = NetworkFrontend(edges())
    again.restore(json.loads(json.dumps(decisions)))
    assert [task.key for task in again.tasks(SAPPHIRE)] == [first.key, second.key, last.key]


def test_reduced_dtypes_leave_the_other_layers_their_estimates(edges):
    network = edges()
    first, *_ = prepared_network(network)[1]
    network.cancellations = {digest_of(first.constants.weights): (128, 16)}
    typed = TypedNetworks(*prepared_network(network), None)
    kept = typed.of({1: "bfloat16"}).fusions[0].spec
    assert (kept.cancellation, kept.detail_cancellation) == (128, 16)
    reduced = typed.of({0: "bfloat16"}).fusions[0].spec
    assert (reduced.dtype, reduced.cancellation) == ("bfloat16", 1)


def test_without_its_framework_nothing_is_estimated(edges):
    network = edges()
    fusions = prepared_network(network)[1]

    def values(names, batches):
        raise ImportError("no torch")

    with capture_logs() as lines:
        assert cancellations_of(fusions[1:], network.graph, values, inputs_of(network)) == {}
    assert [line["event"] for line in lines] == ["errors_not_estimated"]


@pytest.mark.full
def test_the_check_estimates_errors(edges, frontend, target):
    for kind in (target, resolved(f"{ARM}neoverse-n1")):
        assert len(NetworkCheck(edges(), kind, 2).report(["NHWC"]).cancellations) == 1
    for name in ("resnet_small", "bert_small", "vgg_small"):
        check = NetworkCheck(frontend(name).network, target, 2)
        assert check.report(["NHWC"]).cancellations == {}
