"""Running sums and products are those of NumPy, whatever the axis and the extents."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from chameleon_networks._backends import onnx_networks
from chameleon_networks._backends.onnx_networks import untuned
from chameleon_networks._compile import compile  # noqa: A004 - the name of a module
from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_tvm._types import array_type

from ..modules import module_of  # noqa: TID252 - shared by folders

LLVM = '{"kind": "llvm"}'
SCANS = list(product(["cumsum", "cumprod"], [False, True]))


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        *(((3, 5, 70), 1), ((2, 9, 4), 2), ((129, 3), 0), ((17,), 0), ((4, 1, 6), 1)),
        *(((5, 70), 1), ((9, 1, 64), 2), ((67,), 0)),
    ],
)
def test_scans(shape, axis, dtype):
    def build(emit, source):
        return tuple(emit(getattr(relax.op, n)(source, axis, exclusive=e)) for n, e in SCANS)

    x = np.random.default_rng(0).integers(1, 3, shape).astype(dtype)
    with np.errstate(over="ignore"), untuned(module_of(build, (shape, dtype))) as network:
        for (name, exclusive), got in zip(SCANS, network(x), strict=True):
            expected = getattr(np, name)(x, axis)
            if exclusive:
                first = np.full_like(x.take([0], axis), int(name == "cumprod"))
                shorter = expected.take(range(shape[axis] - 1), axis)
                expected = np.concatenate([first, shorter], axis)
            np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=f"{name} {exclusive}")


def test_sums_of_a_long_row_are_infinite_and_undefined_from_some_element_on():
    x = np.random.default_rng(0).standard_normal((2, 101)).astype("float32")
    x[0, 13], x[0, 30], x[1, 99] = np.inf, -np.inf, np.nan
    module = module_of(lambda emit, source: emit(relax.op.cumsum(source, 1)), (x.shape, "float32"))
    with np.errstate(invalid="ignore"), untuned(module) as network:
        np.testing.assert_allclose(network(x), x.cumsum(1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_tvms_own_schedules_sort_as_networks_do(dtype):
    kind = array_type(dtype)
    module = module_of(lambda _, source: relax.op.argsort(source, dtype="int64"), ((6,), dtype))
    x = np.array([3, np.nan if "float" in dtype else 255, 7, 0, 9, 1], "float32").astype(kind)
    machine = relax.VirtualMachine(compile.compile_baseline(module, LLVM), tvm.cpu())
    order = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(order, [3, 5, 0, 2, 4, 1])


def test_copies_of_an_untuned_network_load_it(monkeypatch):
    weights = relax.const(np.arange(3, dtype="float32"))
    module = module_of(lambda _, source: relax.op.multiply(source, weights), (3,))
    x = np.full(3, 2, "float32")
    with untuned(module) as network:
        monkeypatch.setattr(onnx_networks, "compile_network", None)
        for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):  # noqa: S301
            with other:
                np.testing.assert_array_equal(other(x), [0, 2, 4])
