"""Kernels that sort give the order of torch, whatever the dtype, the axis and the extents."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from chameleon_networks._backends.onnx_networks import untuned
from chameleon_networks._graph.relax_utils import relax
from chameleon_tvm._types import array_type

from ..modules import module_of  # noqa: TID252 - shared by folders

RNG = np.random.default_rng(0)
OP = relax.op


def _numbers(shape, dtype):
    """Numbers with many ties, and with the extremes of a dtype."""
    kind = array_type(dtype)
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    x = RNG.integers(0, 100, shape).astype(kind)
    if "int" in dtype:
        extremes = [np.iinfo(kind).max, np.iinfo(kind).min]
    else:
        x = (x - 50).astype(kind)
        extremes = [np.nan, -np.inf, np.inf, -0.0, 0.0]
    for place, value in zip(range(0, x.size, 3), extremes, strict=False):
        x.flat[place] = value
    return x


def _check(shape, axis, dtype, count):
    def build(emit, x):
        results = [emit(OP.argsort(x, axis, descending=way, dtype="int64")) for way in (0, 1)]
        for largest in (True, False):
            both = emit(OP.topk(x, count, axis, "both", largest, "int64"))
            results += [emit(relax.TupleGetItem(both, part)) for part in (0, 1)]
        results.append(emit(OP.topk(x, count, axis, "values", True, "int64")))
        return (*results, emit(OP.topk(x, count, axis, "indices", True, "int32")))

    x = _numbers(shape, dtype)
    with untuned(module_of(build, (shape, dtype))) as network:
        outputs = network(x)
    tensor = torch.from_numpy(x.astype("float32" if dtype == "bfloat16" else x.dtype))
    ways = [torch.sort(tensor, dim=axis, descending=way, stable=True) for way in (False, True)]
    first = [part.narrow(axis, 0, count) for way in ways[::-1] for part in way]
    wanted = [ways[0].indices, ways[1].indices, *first, first[0], first[1].to(torch.int32)]
    for own, other in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(own.astype(other.numpy().dtype), other.numpy())


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "count"),
    [
        ((3, 200), 1, "float32", 5),  # few of many: records are inserted
        ((2, 130), 1, "float64", 7),  # by the digits of keys of 64 bits
        ((90, 3), 0, "uint8", 65),
    ],
)
def test_sorts(shape, axis, dtype, count):
    _check(shape, axis, dtype, count)


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "bool", *INTEGERS])
def test_sorts_of_every_dtype(dtype):
    for shape, axis, count in [((2, 300), 1, 300), ((70,), 0, 8), ((3, 5, 2), 1, 5), ((1,), 0, 1)]:
        _check(shape, axis, dtype, count)


def test_a_delivered_network_sorts_without_tvm(deliver):
    network = deliver(module_of(lambda emit, x: emit(OP.argsort(x, 1)), ((2, 9), "float32")))
    assert json.loads((network.folder / "manifest.json").read_text())["needs"] == ["numpy"]
