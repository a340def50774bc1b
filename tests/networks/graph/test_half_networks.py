"""Random networks of bfloat16 and float16: each kernel writes what NumPy says, rounded once."""

from typing import Any

import numpy as np
import pytest
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import operator_names, prepare_module
from chameleon_networks._graph.propagate_quantization import propagate_quantization
from chameleon_networks._graph.quantization import QParams
from chameleon_networks._graph.relax_utils import relax, shape_of
from chameleon_networks._quantize.apply_dtypes import apply_dtypes
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_tvm._types import HALVES, STORAGE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from marks import full

from ..modules import convolved, expected, module_of  # noqa: TID252 - shared by folders

op = relax.op
HALF_PLACE = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The largest relative error of rounding to a type."""
SUMS = 2e-6
"""What sums in float32 may be off, of the sum of magnitudes."""
IMAGE = (1, 6, 5, 7)

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["conv", "depthwise", "residual", "pool", "concat", "slice"]), st.booleans()
    ),
    min_size=1,
    max_size=5,
)


def encode(tensor, kind="bfloat16"):
    builder = relax.BlockBuilder.current()
    return builder.emit(QParams(source=tensor, dtype=kind).quantize(builder, tensor))


def decode(tensor, kind="bfloat16"):
    builder = relax.BlockBuilder.current()
    return builder.emit(QParams(source=tensor, dtype=kind).dequantize(builder, tensor))


def near(array, kind="bfloat16"):
    return STORAGE[kind].rounded(array)


class _Network:
    """A network of some steps; what each is, is noted as a function of earlier results."""

    def __init__(self, steps, *, whole):
        self._steps = steps
        self._whole = whole
        self.expected: list[Any] = []

    def build(self, emit, x):
        rng = np.random.default_rng(len(self._steps))
        self.expected.clear()
        results = [x]
        for kind, activated in self._steps:
            last, at = results[-1], len(results) - 1
            channels = shape_of(last)[1]
            if kind == "pool":
                results.append(emit(op.nn.max_pool2d(last, (3, 3), (1, 1), (1, 1, 1, 1))))
                self.expected.append(None)
            elif kind == "concat":
                results.append(emit(op.concat([last, last], axis=1)))
                self.expected.append(None)
            elif kind == "slice":
                results.append(emit(op.strided_slice(last, [1], [0], [max(1, channels // 2)])))
                self.expected.append(None)
            else:
                groups = channels if kind == "depthwise" else 1
                filters = 12 if kind == "conv" else channels
                shape = (filters, channels // groups, 3, 3)
                weights = rng.standard_normal(shape, np.float32)
                bias = rng.standard_normal((1, filters, 1, 1), np.float32)
                y = emit(op.nn.conv2d(last, relax.const(weights), padding=1, groups=groups))
                y = emit(op.add(y, relax.const(bias)))
                others = [n for n, result in enumerate(results) if shape_of(result) == shape_of(y)]
                residual = others[0] if kind == "residual" and others else None
                if residual is not None:
                    y = emit(op.add(y, results[residual]))
                results.append(emit(op.nn.relu(y)) if activated else y)
                self.expected.append((at, weights, bias, groups, residual, activated))
        return tuple(results[1:]) if self._whole else results[-1]

    def check(self, image, outputs, kind):
        """Every result, none of which is rounded, against the float64 one of what it reads."""
        results = [image, *outputs]
        for got, step in zip(outputs, self.expected, strict=True):
            if step is None:
                continue
            exact, room = self._exact(step, results, kind, added=lambda value: value)
            assert (np.abs(got - exact) <= SUMS * room).all()

    def check_last(self, image, got, kind):
        """The last result alone, all others of which are rounded where they are written.

        A sum next to the middle of two numbers may be rounded to the other one.
        """
        results = [image]
        for step, parts in zip(self._steps, self.expected, strict=True):
            if parts is None:
                results.append(_moved(step[0], results[-1]))
            else:
                exact, _ = self._exact(parts, results, kind, added=lambda value: near(value, kind))
                results.append(exact)
        expected = results[-1]
        room = (1 + len(results)) * HALF_PLACE[kind] * np.abs(expected).max()
        assert np.abs(got - expected).max() <= room

    def _exact(self, step, results, kind, *, added):
        """A step's result, and the sum of magnitudes that it adds up."""
        at, weights, bias, groups, residual, activated = step
        data = near(results[at], kind)
        exact = convolved(data, near(weights, kind), groups) + bias
        room = convolved(np.abs(data), np.abs(near(weights, kind)), groups) + np.abs(bias)
        if residual is not None:
            exact = exact + added(results[residual])
            room = room + np.abs(results[residual])
        return np.maximum(exact, 0) if activated else exact, room


def _moved(kind, image):
    if kind == "concat":
        return np.concatenate([image, image], axis=1)
    if kind == "slice":
        return image[:, : max(1, image.shape[1] // 2)]
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).max(axis=(4, 5))


@pytest.mark.full
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=STEPS,
    seed=st.integers(0, 99),
    layout=st.sampled_from(["NCHW", "NHWC"]),
    kind=st.sampled_from(sorted(HALF_PLACE)),
    whole=st.booleans(),
)
@pytest.mark.parametrize("guesses", [False, True])
def test_random_networks(deliver, steps, seed, layout, kind, *, whole, guesses):
    network = _Network(steps, whole=whole)
    module = prepare_module(module_of(network.build, (IMAGE, "float32")), layout)
    fusions = find_fusions(module)
    typed = apply_dtypes(
        module, fusions, dict.fromkeys(find_eligible(fusions, kind).indices, kind), {}
    )
    rounded = find_fusions(typed)
    assert [fusion.spec.dtype for fusion in rounded] == [kind] * len(fusions)
    image = np.random.default_rng(seed).normal(0, 4, IMAGE).astype(np.float32)
    result = deliver(typed, ready=True, guesses=guesses).run(image)
    if whole:
        results = result if isinstance(result, list | tuple) else [result]
        network.check(image, results, kind)
    else:
        network.check_last(image, result, kind)


@pytest.mark.parametrize("kind", ["bfloat16", full("float16")])
def test_images_are_pooled_in_two_bytes_between_convolutions(deliver, kind):
    network = _Network([("conv", True), ("pool", False), ("conv", False)], whole=False)
    module = prepare_module(module_of(network.build, (IMAGE, "float32")), "NHWC")
    typed = apply_dtypes(module, find_fusions(module), dict.fromkeys((0, 1), kind), {})
    first, last = find_fusions(typed)
    assert [first.spec.output_dtype, last.spec.output_dtype] == [kind, "float32"]
    assert "relax.nn.max_pool2d" not in operator_names(typed)
    values = {b.var: b.value for block in typed["main"].body.blocks for b in block.bindings}
    assert list(values[last.inputs[0]].args[1].fields) == [first.last]
    image = np.random.default_rng(0).normal(0, 4, IMAGE).astype(np.float32)
    network.check_last(image, deliver(typed, ready=True).run(image), kind)


@pytest.mark.parametrize("half", [STORAGE[name] for name in HALVES], ids=lambda half: half.name)
def test_pooling_compares_numbers_of_all_kinds(half):
    numbers = np.float32([-np.inf, -3.5, -1e-6, -0.0, 0.0, 1e-6, 2.5, np.inf])
    rng = np.random.default_rng(0)
    bits = half.stored(rng.permutation(np.repeat(numbers, 16))).reshape(1, 1, 8, 16)
    # NaN of either sign.
    bits.view(np.uint16)[0, 0, ::4, rng.integers(0, 16, 2)] = 0x7FC0, 0xFFC0

    def build(emit, x):
        wide = decode(x, half.name)
        return encode(emit(op.nn.max_pool2d(wide, (2, 2), (1, 1), (1, 1, 1, 1))), half.name)

    moved = propagate_quantization(module_of(build, (bits.shape, half.storage_dtype)))
    assert "relax.nn.max_pool2d" not in operator_names(moved)
    padded = np.pad(half.real(bits), [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))
    np.testing.assert_array_equal(half.real(*expected(moved, bits)), windows.max((-2, -1)))


def test_a_chain_whose_sums_are_read_before_they_are_rounded_writes_float32():
    weights = relax.const(near(np.ones((4, 4), np.float32)))

    def build(emit, x):
        product = emit(op.matmul(decode(encode(x)), weights))
        return product, encode(product)

    [fusion] = find_fusions(module_of(build, (2, 4)))
    assert [fusion.spec.dtype, fusion.spec.output_dtype] == ["bfloat16", "float32"]


def test_weights_that_are_no_numbers_of_the_type_stay_in_float32():
    def fusion(weight):
        def build(emit, x):
            weights = relax.const(np.full((4, 4), weight, np.float32))
            return decode(encode(emit(op.matmul(decode(encode(x)), weights))))

        [fused] = find_fusions(module_of(build, (2, 4)))
        return fused

    assert fusion(0.5).spec.dtype == "bfloat16"
    assert [len(fusion(0.5).members), len(fusion(0.1).members)] == [2, 1]
    assert fusion(0.1).spec.dtype == "float32"


@pytest.mark.parametrize("read_otherwise", [False, True])
def test_what_moves_numbers_to_be_rounded_is_computed_on_bits(*, read_otherwise):
    def build(emit, x):
        wide = decode(encode(x))
        moved = emit(op.permute_dims(emit(op.concat([wide, wide], axis=1))))
        last = decode(encode(moved))
        return (last, moved) if read_otherwise else (last,)

    module = propagate_quantization(module_of(build, (2, 4)))
    values = [b.value for block in module["main"].body.blocks for b in block.bindings]
    types = [str(value.ty.dtype) for value in values[:-1]]
    bits, numbers = ["uint16"], ["float32"]
    if read_otherwise:
        # Both moves are of float32, and are rounded again.
        assert types == bits + 3 * numbers + bits + numbers
    else:
        assert operator_names(module) == {"relax.call_tir", "relax.concat", "relax.permute_dims"}
        assert types == 3 * bits + numbers
