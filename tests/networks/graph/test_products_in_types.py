"""Attention, and products of two tensors that vary, in the types of a network."""

from functools import partial

import numpy as np
import pytest
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax, shape_of
from chameleon_networks._quantize.apply_dtypes import apply_dtypes
from chameleon_networks._quantize.data_flow import DataFlow
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import Affine

from ..modules import in_eight_bits, module_of  # noqa: TID252 - shared by folders

RNG = np.random.default_rng(0)


def _normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def network_of(build, *shapes):
    module = prepare_module(module_of(build, *shapes), "NHWC")
    return module, find_fusions(module)


def _attended(emit, x, heads=2, *, apart=False):
    """Queries, keys and values from one input or from two, attention, and a projection."""
    op, width = relax.op, shape_of(x)[-1]

    def headed(weights, axes):
        source = emit(op.negative(x)) if apart and axes == ORDERS[1] else x
        product = emit(op.matmul(source, relax.const(weights)))
        split = emit(op.reshape(product, (1, shape_of(x)[1], heads, width // heads)))
        return emit(op.permute_dims(split, axes))

    query, key, value = (
        headed(constant, axes) for constant, axes in zip(PROJECTIONS[:3], ORDERS, strict=True)
    )
    scores = emit(op.divide(emit(op.matmul(query, key)), relax.const(2.0)))
    mixed = emit(op.matmul(emit(op.nn.softmax(scores)), value))
    joined = emit(op.reshape(emit(op.permute_dims(mixed, [0, 2, 1, 3])), shape_of(x)))
    return emit(op.matmul(joined, relax.const(PROJECTIONS[3])))


ORDERS = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
"""Of axes of queries, keys and values as attention reads them."""
PROJECTIONS = [_normal(8, 8) / np.float32(8**0.5) for _ in range(4)]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("apart", [True, False])
def test_tensors_between_attention_and_its_projections_are_of_two_bytes(kind, apart, deliver):
    module, fusions = network_of(partial(_attended, apart=apart), (1, 24, 8))
    before = 3 if apart else 1  # products
    kinds = [*["dense"] * before, "attention", "dense"]
    assert [fusion.spec.kind for fusion in fusions] == kinds
    typed = apply_dtypes(module, fusions, dict.fromkeys(range(len(kinds)), kind), {})
    rounded = find_fusions(typed)
    assert [fusion.spec.dtype for fusion in rounded] == [kind] * len(kinds)
    outputs = [*[kind] * (before + 1), "float32"]
    assert [fusion.spec.output_dtype for fusion in rounded] == outputs
    storage = {"bfloat16": "uint16"}.get(kind, kind)
    assert {str(tensor.ty.dtype) for fusion in rounded for tensor in fusion.inputs} == {storage}
    # Queries, keys and values are read where their projections write them.
    assert [fusion.last for fusion in rounded[:before]] == list(rounded[before].inputs)
    x = _normal(1, 24, 8)
    got, exact = (deliver(network, ready=True, guesses=True).run(x) for network in (typed, module))
    room = {"bfloat16": 2e-2, "float16": 2e-3}[kind]
    assert 0 < np.abs(got - exact).max() <= room * np.abs(exact).max()
    # Attention alone: what it reads is rounded for it, and nothing else is.
    alone = find_fusions(apply_dtypes(module, fusions, {before: kind}, {}))
    assert [fusion.spec.dtype for fusion in alone] == [*["float32"] * before, kind, "float32"]
    assert "no sum of products" in find_eligible(fusions, "int8").reasons[before]


def test_attention_whose_operands_others_read_stays_in_float32():
    def build(emit, x):
        key = emit(relax.op.permute_dims(x, [0, 1, 3, 2]))
        scores = emit(relax.op.nn.softmax(emit(relax.op.matmul(x, key))))
        return relax.Tuple([emit(relax.op.matmul(scores, x)), key])

    _, fusions = network_of(build, (1, 2, 24, 8))
    [reason] = find_eligible(fusions, "bfloat16").reasons.values()
    assert "rearranged for other operators" in reason


def test_products_of_two_tensors_are_computed_in_eight_bits(deliver):
    def build(emit, x, y):
        product = emit(relax.op.matmul(x, emit(relax.op.permute_dims(y, [0, 2, 1]))))
        return emit(relax.op.matmul(product, y))

    module, fusions = network_of(build, (2, 6, 9), (2, 7, 9))
    x, y = _normal(2, 6, 9), _normal(2, 7, 9)
    names = DataFlow(module, fusions).names
    affines = {name: Affine.between(-3.0, 3.0) for name in names.values()}
    affines[names[fusions[0].last]] = Affine.between(-15.0, 13.0)
    typed = apply_dtypes(module, fusions, {0: "int8", 1: "int8"}, affines)
    rounded = find_fusions(typed)
    assert [fusion.spec.dtype for fusion in rounded] == ["int8", "int8"]
    assert [fusion.spec.output_dtype for fusion in rounded] == ["uint8", "float32"]
    got = deliver(typed, ready=True, guesses=True).run(x, y)
    near = [in_eight_bits(affines[names[fusions[0].inputs[0]]], z) for z in (x, y)]
    middle = affines[names[fusions[0].last]]
    product = near[0].astype(np.float64) @ near[1].swapaxes(1, 2)
    expected = in_eight_bits(middle, product.astype(np.float32)) @ near[1]
    # A number next to the middle of two may be rounded to the other one.
    assert np.abs(got - expected).max() <= middle.scale * np.abs(near[1]).max() * 1.01
