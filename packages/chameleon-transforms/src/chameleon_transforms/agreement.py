"""Whether a program's torch module and its operators of TVM compute the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from chameleon_tvm.operators.base import Operator, operator_of, tolerance_of
from chameleon_tvm.quick_tvm import tvm
from numpy.typing import NDArray

from chameleon_transforms.nest.domain import Nest
from chameleon_transforms.nest.modules import TransformedConvolution, module_of
from chameleon_transforms.nest.program import Program
from chameleon_transforms.nest.tasks import Spec, spec_of

Array = NDArray[np.float32]

_TARGET = json.dumps({"kind": "llvm", "opt-level": 0})
"""Compiles fastest; what is computed is the same."""


@cache
def _kernel(spec: Spec) -> tuple[Operator, Any]:
    """An operator and its unscheduled function, compiled."""
    operator = operator_of(spec.task("operator", _TARGET))
    return operator, tvm.compile(operator.prim_func(), target=tvm.target.Target(_TARGET))


def _computed(nest: Nest, x: Array, weight: Array) -> Array:
    """What TVM computes of one nest.

    Args:
        nest: which.
        x: the stage's whole input, shape (n, channels, rows, columns).
        weight: of the nest, as torch's convolution has it.
    """
    rows = nest.read_rows
    read = x[:, nest.inputs.start : nest.inputs.stop, rows.start : rows.stop]
    operator, compiled = _kernel(spec_of(nest, batch=len(x)))
    inputs = operator.arrange([np.ascontiguousarray(read), weight])
    shape = (len(x), nest.rows.length, nest.columns, nest.outputs.length)
    out = tvm.runtime.tensor(np.zeros(shape, np.float32))
    compiled["main"](*(tvm.runtime.tensor(np.ascontiguousarray(one)) for one in inputs), out)
    (result,) = operator.logical([out.numpy()])
    return result.astype(np.float32)


def with_tvm(program: Program, module: TransformedConvolution, x: Array) -> Array:
    """What the operators of a program compute with the weights of its module.

    Args:
        program: which.
        module: its own.
        x: images, shape (n, channels, rows, columns).
    """
    for stage, convolutions in zip(program.stages, module.convolutions, strict=True):
        written = np.full((len(x), *stage.output), np.nan, np.float32)
        nests = sorted(stage.nests, key=lambda one: (one.rows.start, one.outputs.start))
        for nest, convolution in zip(nests, convolutions, strict=True):
            rows = slice(nest.rows.start, nest.rows.stop)
            channels = slice(nest.outputs.start, nest.outputs.stop)
            weight = convolution.weight.detach().numpy()
            written[:, channels, rows] = _computed(nest, x, weight)
        x = written
    if module.bias is None:
        return x
    with_bias: Array = x + module.bias.detach().numpy()[None, :, None, None]
    return with_bias


def disagreement(program: Program, *, batch: int = 1, seed: int = 0) -> Mapping[str, float]:
    """How far torch and TVM are from each other for random weights and images.

    Args:
        program: any; of few channels, since nothing is scheduled.
        batch: samples.
        seed: of everything.

    Returns:
        ``error``: the largest difference over the largest output, not a number where an output is
        written by nobody; ``tolerance``: what is allowed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = module_of(program)
        x = torch.randn((batch, *program.stages[0].input))
        if module.bias is not None:
            torch.nn.init.normal_(module.bias)
    with torch.no_grad():
        expected = module(x).numpy()
    found = with_tvm(program, module, x.numpy())
    if found.shape != expected.shape:
        return {"error": float("nan"), "tolerance": tolerance_of("float32")}
    error = np.abs(found - expected).max() / np.abs(expected).max()
    return {"error": float(error), "tolerance": tolerance_of("float32")}
