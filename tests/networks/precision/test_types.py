"""Types put into networks: what is then computed, against NumPy."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import operator_names
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._quantize.apply_dtypes import apply_dtypes
from chameleon_networks._quantize.data_flow import DataFlow, ReadFormats
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import Affine
from chameleon_networks._quantize.weights import quantize_weights
from chameleon_tvm._types import STORAGE

from ..modules import convolved, in_eight_bits, operators_of  # noqa: TID252 - shared by folders

INTEGERS = ("int8", "int7")
RNG = np.random.default_rng(0)


def _normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


FILTERS = [_normal(8, 8, 3, 3), _normal(8, 8, 3, 3), _normal(8, 1, 3, 3), _normal(8, 8, 3, 3)]
BIAS = _normal(8)
MATRIX = _normal(8, 5)


def _residual_network(emit, x):
    """Two convolutions around which the first one's output is added, then a third."""
    first = emit(relax.op.nn.conv2d(x, relax.const(FILTERS[0]), padding=1))
    first = emit(relax.op.nn.relu(first))
    inner = emit(relax.op.nn.conv2d(first, relax.const(FILTERS[1]), padding=1))
    inner = emit(relax.op.nn.relu(inner))
    depthwise = emit(relax.op.nn.conv2d(inner, relax.const(FILTERS[2]), padding=1, groups=8))
    bias = relax.const(BIAS.reshape(1, 8, 1, 1))
    added = emit(relax.op.nn.relu(emit(relax.op.add(emit(relax.op.add(depthwise, bias)), first))))
    last = emit(relax.op.nn.conv2d(added, relax.const(FILTERS[3]), padding=1))
    return emit(relax.op.matmul(emit(relax.op.mean(last, axis=[2, 3])), relax.const(MATRIX)))


class _Simulated:
    """The same in NumPy, with rounding as asked."""

    def __init__(self, types, ranges, names):
        self._types = types
        self._affines = [ranges[name] for name in names]

    def data(self, index, values, number=None):
        kind = self._types.get(index)
        if kind is None:
            return values
        if kind not in INTEGERS:
            return STORAGE[kind].rounded(values.astype(np.float32))
        return in_eight_bits(self._affines[index if number is None else number], values)

    def weights(self, index, values):
        kind = self._types.get(index)
        if kind is None:
            return values
        return (
            quantize_weights(values, STORAGE[kind]).dequantized
            if kind in INTEGERS
            else STORAGE[kind].rounded(values)
        )

    def network(self, x, *, narrow):
        first = np.maximum(convolved(self.data(0, x), self.weights(0, FILTERS[0])), 0)
        inner = np.maximum(convolved(self.data(1, first), self.weights(1, FILTERS[1])), 0)
        sums = convolved(self.data(2, inner), self.weights(2, FILTERS[2]), 8)
        residual = self.data(2, first, 1) if narrow else first
        added = np.maximum(sums + BIAS.reshape(1, 8, 1, 1) + residual, 0)
        last = convolved(self.data(3, added), self.weights(3, FILTERS[3]))
        return self.data(4, last.mean(axis=(2, 3))) @ self.weights(4, MATRIX.T).T


class _Seeing(_Simulated):
    """The same in float32, which keeps what is read."""

    seen: list[np.ndarray]

    def data(self, index, values, number=None):
        self.seen = [*(self.seen if index else ()), values] if number is None else self.seen
        return values


def _calibrated(module, fusions, x):
    """Ranges of what fusions of ``_residual_network`` read, found without the package."""
    plain = _Seeing({}, {}, [])
    plain.network(x, narrow=False)
    network = DataFlow(module, fusions)
    names = [network.names[fusion.inputs[0]] for fusion in fusions]
    affines = [Affine.between(float(array.min()), float(array.max())) for array in plain.seen]
    return dict(zip(names, affines, strict=True)), names


@pytest.mark.full
@pytest.mark.parametrize(
    ("types", "narrow", "batch"),
    [
        (dict.fromkeys(range(5), "int8"), {0, 1, 2}, 3),
        ({0: "int8", 1: "int8", 3: "int8"}, set(), 1),
        ({2: "int8", 3: "int8"}, {2}, 1),
        ({0: "int7", 1: "int8", 2: "int8", 3: "int7", 4: "int7"}, {0, 1, 2}, 1),
        (dict.fromkeys(range(5), "float16"), {0, 1, 2}, 1),
        ({0: "float16", 1: "int8", 2: "float16"}, set(), 1),
    ],
)
def test_a_network_computes_what_its_types_say(types, narrow, batch, network_of, ran):
    x = _normal(batch, 8, 6, 7)
    module, fusions = network_of(_residual_network, x.shape)
    assert [fusion.spec.kind for fusion in fusions] == [
        *("conv2d", "conv2d", "depthwise_conv2d", "conv2d", "dense")
    ]
    ranges, names = _calibrated(module, fusions, x)
    assert ReadFormats(DataFlow(module, fusions), types, ranges).reduced_outputs == narrow
    typed = apply_dtypes(module, fusions, types, ranges)
    specs = [fusion.spec for fusion in find_fusions(typed)]
    small = {index for index, kind in types.items() if kind in INTEGERS}
    assert {index for index, spec in enumerate(specs) if spec.dtype == "int8"} == small
    outputs = {index for index, spec in enumerate(specs) if spec.output_dtype == "uint8"}
    assert outputs == narrow & small
    [output] = ran(typed, x)
    expected = _Simulated(types, ranges, names).network(x, narrow=2 in narrow)
    # A number next to the middle of two may be rounded to the other one.
    scale = np.abs(expected).max()
    assert np.abs(output - expected).max() <= 2e-3 * scale
    exact = _Simulated({}, ranges, names).network(x, narrow=False)
    assert np.abs(output - exact).max() > np.abs(output - expected).max()


def test_a_matrix_that_is_repeated_for_every_sample_is_one_matrix(network_of, ran):
    def build(emit, x):
        repeated = np.broadcast_to(MATRIX, (3, *MATRIX.shape))
        return emit(relax.op.matmul(x, relax.const(np.ascontiguousarray(repeated))))

    module, fusions = network_of(build, (3, 2, 8))
    x = _normal(3, 2, 8)
    [tensor] = fusions[0].inputs
    affine = Affine.between(float(x.min()), float(x.max()))
    for kind in INTEGERS:
        ranges = {DataFlow(module, fusions).names[tensor]: affine}
        typed = apply_dtypes(module, fusions, {0: kind}, ranges)
        assert [fusion.spec.dtype for fusion in find_fusions(typed)] == ["int8"]
        weights = quantize_weights(MATRIX.T, STORAGE[kind]).dequantized.T
        np.testing.assert_allclose(
            ran(typed, x)[0], in_eight_bits(affine, x) @ weights, rtol=1e-5, atol=1e-5
        )


def test_one_pair_serves_all_who_read_a_tensor(network_of):
    x = _normal(1, 8, 6, 7)
    module, fusions = network_of(_residual_network, x.shape)
    ranges, _ = _calibrated(module, fusions, x)
    typed = apply_dtypes(module, fusions, dict.fromkeys(range(5), "int8"), ranges)
    called = operators_of(typed)
    # One for each fusion's data; the residual is the second fusion's data.
    assert called.count("quantize") == 5
    assert called.count("dequantize") == 5 + 5
    assert [fusion.spec.kind for fusion in find_fusions(module)] == [
        fusion.spec.kind for fusion in fusions
    ]


def test_what_moves_numbers_is_between_pairs_of_one_range(network_of, ran):
    def build(emit, x):
        parts = [emit(relax.op.nn.conv2d(x, relax.const(f), padding=1)) for f in FILTERS[:2]]
        joined = emit(relax.op.concat([emit(relax.op.nn.relu(part)) for part in parts], axis=1))
        pooled = emit(relax.op.nn.max_pool2d(joined, (2, 2), (2, 2)))
        return emit(relax.op.nn.conv2d(pooled, relax.const(_normal(4, 16, 3, 3)), padding=1))

    module, fusions = network_of(build, (1, 8, 8, 8))
    network = DataFlow(module, fusions)
    types = dict.fromkeys(range(3), "int8")
    affine = Affine(scale=0.05, zero_point=7)
    same = dict.fromkeys(network.names.values(), affine)
    assert ReadFormats(network, types, same).reduced_outputs == {0, 1}
    other = {**same, network.names[fusions[0].last]: Affine(scale=0.04, zero_point=7)}
    assert ReadFormats(network, types, other).reduced_outputs == {1}
    carried = {(network.names[v], network.names[to]) for v, to in network.moved_pairs()}
    assert len(carried) == 4  # two parts, the pool, and the permutation of what comes out
    x = _normal(1, 8, 8, 8)
    [before], [behind] = (ran(apply_dtypes(module, fusions, types, r), x) for r in (same, other))
    np.testing.assert_array_equal(before, behind)


def test_images_are_flattened_on_eight_bits(network_of, ran):
    def build(emit, x):
        sums = emit(relax.op.nn.conv2d(x, relax.const(FILTERS[0]), padding=1))
        pooled = emit(relax.op.nn.max_pool2d(emit(relax.op.nn.relu(sums)), (2, 2), (2, 2)))
        flat = emit(relax.op.reshape(pooled, (1, 72)))
        return emit(relax.op.matmul(flat, relax.const(_normal(72, 5))))

    module, fusions = network_of(build, (1, 8, 6, 6))
    names = DataFlow(module, fusions).names.values()
    ranges = dict.fromkeys(names, Affine(scale=0.1, zero_point=100))
    typed = apply_dtypes(module, fusions, {0: "int8", 1: "int8"}, ranges)
    assert [fusion.spec.output_dtype for fusion in find_fusions(typed)] == ["uint8", "float32"]
    assert operators_of(typed).count("quantize") == 2
    assert np.isfinite(ran(typed, _normal(1, 8, 6, 6))[0]).all()


def test_what_cannot_have_a_type_says_why(network_of):
    def build(emit, x, y):
        product = emit(relax.op.matmul(x, y))
        return emit(relax.op.matmul(product, relax.const(np.ones((70_000, 2), np.float32))))

    module, fusions = network_of(build, (2, 4, 3), (2, 3, 70_000))
    able = find_eligible(fusions, "int8")
    assert able.indices == (0,)
    assert "70000 products" in able.reasons[1]
    assert find_eligible(fusions, "bfloat16").indices == (0, 1)
    with pytest.raises(ConfigError, match="operator 1 of the network cannot be computed in int8"):
        apply_dtypes(module, fusions, {1: "int8"}, {})
    with pytest.raises(ConfigError, match="no precision 'int4'"):
        find_eligible(fusions, "int4")


def test_weights_that_a_type_does_not_hold_are_named(network_of):
    def build(emit, x):
        return emit(relax.op.matmul(x, relax.const(np.full((8, 4), 7e4, np.float32))))

    _, fusions = network_of(build, (2, 8))
    assert find_eligible(fusions, "bfloat16").indices == (0,)
    assert "larger than what float16 holds" in find_eligible(fusions, "float16").reasons[0]


def test_a_tensor_without_a_range_is_named(network_of):
    module, fusions = network_of(_residual_network, (1, 8, 6, 7))
    with pytest.raises(ConfigError, match="no range for the network's tensor 'x0'"):
        apply_dtypes(module, fusions, {0: "int8"}, {})


def test_types_of_float32_change_nothing(network_of):
    module, fusions = network_of(_residual_network, (1, 8, 6, 7))
    assert apply_dtypes(module, fusions, {0: "float32"}, {}).same_as(module)
    assert "quantize" not in operator_names(module)
