"""Permutations that meet through element-wise operators vanish, and the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_networks.graph.moves import without_moves
from chameleon_networks.graph.relaxed import relax, tvm

op = relax.op
SLOPES = np.array([0.5, -1.0, 2.0], np.float32)


def _network() -> Any:
    """What a layout's conversion leaves of ``PReLU(3)`` and a bias between NHWC convolutions."""
    source = relax.Var("x", relax.TensorType((1, 4, 5, 3), "float32"))
    builder = relax.BlockBuilder()
    slopes, bias = relax.const(SLOPES.reshape(1, 3, 1, 1)), relax.const(SLOPES.reshape(3, 1, 1))
    with builder.function("main", [source]):
        with builder.dataflow():
            images = builder.emit(op.permute_dims(source, [0, 3, 1, 2]))
            above = builder.emit(op.greater(images, relax.const(np.float32(0.0))))
            below = builder.emit(op.multiply(slopes, images))
            made = builder.emit(op.where(above, images, below))
            made = builder.emit(op.add(made, bias))
            made = builder.emit(op.permute_dims(made, [0, 2, 3, 1]))
            out = builder.emit_output(op.negative(made))
        builder.emit_func_output(out)
    return builder.get()


def _run(module: Any, given: Any) -> Any:
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(given)).numpy()


def test_constants_of_channels_and_selections_stand_in_no_permutations_way():
    module = without_moves(_network())
    assert "permute_dims" not in str(module)
    given = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype(np.float32)
    expected = np.where(given > 0, given, SLOPES * given) + SLOPES
    np.testing.assert_allclose(_run(module, given), -expected, rtol=1e-6)
