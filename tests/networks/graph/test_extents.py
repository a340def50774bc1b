"""Shapes as integers, and constants that are made only where they are read."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._compile.sequence.calls import read_call_sequence
from chameleon_networks._graph import constants
from chameleon_networks._graph.relax_utils import relax, shape_of, static_shape, tvm
from chameleon_tvm._quick_tvm import tirx

from ..modules import module_of  # noqa: TID252 - shared by folders


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4, 5)])
def test_extents_of_what_is_known(shape):
    assert static_shape(relax.TensorType(shape, "float32")) == shape
    assert shape_of(relax.TensorType(shape, "float32")) == shape
    assert static_shape(tirx.decl_buffer(shape or (1,), "float32").ty) == (shape or (1,))


def test_open_extents_and_what_is_no_tensor_have_none():
    for kind in (
        relax.TensorType([2, tirx.Var("n", "int64")], "float32"),
        relax.TensorType(dtype="float32", ndim=2),
        relax.TupleType([]),
        None,
    ):
        assert static_shape(kind) is None
        with pytest.raises(ConfigError, match="unknown shape"):
            shape_of(kind)


def _with_moved_weights(emit, x):
    weights = relax.const(np.arange(12, dtype=np.float32).reshape(3, 4))
    for _ in range(3):
        weights = emit(relax.op.permute_dims(weights))
    product = emit(relax.op.matmul(x, weights))
    return relax.op.add(product, emit(relax.op.sum(weights, axis=[0])))


def test_constants_are_made_of_what_stays_alone(monkeypatch):
    module = module_of(_with_moved_weights, (2, 4))
    shapes = []
    original = relax.const

    def counted(value, *arguments):
        shapes.append(np.shape(value))
        return original(value, *arguments)

    monkeypatch.setattr(constants.relax, "const", counted)
    folded = constants.fold_constants(module)
    assert sorted(shapes) == [(3,), (4, 3)]
    nodes = []
    relax.analysis.post_order_visit(
        folded["main"],
        lambda node: nodes.append(node) if isinstance(node, tvm.ir.GenericConst) else None,
    )
    expected = np.arange(12, dtype=np.float32).reshape(3, 4).T
    assert any(np.array_equal(node.value.numpy(), expected) for node in nodes)


def test_a_constant_that_is_read_twice_is_one_tensor_of_the_sequence():
    shared, other = (relax.const(np.ones(4, np.float32)) for _ in range(2))

    def build(emit, x):
        return relax.op.add(emit(relax.op.add(emit(relax.op.add(x, shared)), shared)), other)

    sequence = read_call_sequence(relax.transform.LegalizeOps()(module_of(build, (4,))))
    first, second, third = (call.reads[1].storage for call in sequence.calls)
    assert first is second
    assert third is not first
    assert np.array_equal(first.constant, np.ones(4))
