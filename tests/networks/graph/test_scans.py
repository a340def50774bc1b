"""Running sums and products are those of NumPy, whatever the axis and the extents."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
from chameleon_networks.backends import onnx_networks
from chameleon_networks.backends.onnx_networks import untuned
from chameleon_networks.graph.relaxed import relax

SCANS = list(product(["cumsum", "cumprod"], [False, True]))
SOURCES = list(
    product(
        [((3, 5, 70), 1), ((2, 9, 4), 2), ((129, 3), 0), ((17,), 0), ((4, 1, 6), 1)],
        ["float32", "int64"],
    )
)


def _expected(name, x, axis, *, exclusive):
    result = getattr(np, name)(x, axis)
    if exclusive:
        first = np.full_like(x.take([0], axis), int(name == "cumprod"))
        return np.concatenate([first, result.take(range(x.shape[axis] - 1), axis)], axis)
    return result


def test_scans():
    # One network has them all: compiling several takes longer.
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{number}", relax.TensorType(shape, dtype))
        for number, ((shape, _), dtype) in enumerate(SOURCES)
    ]
    cases = [
        (number, axis, name, exclusive)
        for number, ((_, axis), _) in enumerate(SOURCES)
        for name, exclusive in SCANS
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            scans = [
                builder.emit(getattr(relax.op, name)(inputs[number], axis, exclusive=exclusive))
                for number, axis, name, exclusive in cases
            ]
            result = builder.emit_output(relax.Tuple(scans))
        builder.emit_func_output(result)
    rng = np.random.default_rng(0)
    xs = [rng.integers(1, 3, shape).astype(dtype) for (shape, _), dtype in SOURCES]
    with np.errstate(over="ignore"), untuned(builder.get()) as network:
        for (number, axis, name, exclusive), got in zip(cases, network(*xs), strict=True):
            expected = _expected(name, xs[number], axis, exclusive=exclusive)
            about = f"{name} {exclusive} {SOURCES[number]}"
            np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=about)


def test_copies_of_an_untuned_network_load_it(monkeypatch):
    builder = relax.BlockBuilder()
    source = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [source]):
        with builder.dataflow():
            weights = relax.const(np.arange(3, dtype="float32"))
            result = builder.emit_output(relax.op.multiply(source, weights))
        builder.emit_func_output(result)
    x = np.full(3, 2, "float32")
    with untuned(builder.get()) as network:
        monkeypatch.setattr(onnx_networks, "compiled", None)
        for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):  # noqa: S301
            with other:
                np.testing.assert_array_equal(other(x), [0, 2, 4])
