"""Tries whether functions compute a call's part from this part alone, such as running sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from chameleon_core.plugin_api import Arrays
from chameleon_tvm.api import array_type, open_axes
from numpy.typing import NDArray

from chameleon_networks._compile.network_pipeline import PIPELINE
from chameleon_networks._compile.open_layouts import OpenSizes
from chameleon_networks._compile.sequence.calls import Call, Tensor
from chameleon_networks._graph.relax_utils import tvm

_LATER = (np.nan, 1e30, -1e30, 1.0)
"""Numbers after the part of a call."""


def reads_later_elements(function: Any, call: Call, sizes: OpenSizes, extent: int) -> bool:
    """Whether the outputs of a call depend on elements after its part, as far as can be tried.

    Args:
        function: The function of the call.
        call: The call.
        sizes: The open axes of its arguments.
        extent: The extent for which the function is compiled.
    """
    taking, is_open = open_axes.with_extent(function)
    named = tvm.IRModule({"main": taking.with_attr("global_symbol", "main")})
    main = tvm.compile(named, target="llvm", tir_pipeline=PIPELINE)["main"]
    rng = np.random.default_rng(0)
    inputs = [_drawn(tensor, rng) for tensor in call.reads]
    for part in sorted({1, extent // 2, extent - 1} & {*range(1, extent)}):
        seen = set()
        for later in _LATER:
            arrays = [
                _with_later(array, axes, part, later)
                for array, axes in zip(inputs, sizes, strict=False)
            ]
            outputs = [_zeros(tensor) for tensor in call.writes]
            tensors = [tvm.runtime.tensor(array) for array in (*arrays, *outputs)]
            main(*tensors, *[part] * is_open)
            written = [tensor.numpy() for tensor in tensors[len(arrays) :]]
            seen.add(b"".join(_parts(written, sizes[len(arrays) :], part)))
        if len(seen) > 1:
            return True
    return False


def _drawn(tensor: Tensor, rng: np.random.Generator) -> NDArray[Any]:
    """The value of a constant, or random numbers; integers and truth values are 0 or 1."""
    if tensor.storage.constant is not None:
        return np.ascontiguousarray(tensor.storage.constant).reshape(tensor.shape)
    array = _zeros(tensor)
    is_float = array.dtype.kind not in "iub"
    array[...] = rng.standard_normal(array.shape) if is_float else rng.integers(0, 2, array.shape)
    return array


def _zeros(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = np.zeros(tensor.shape, array_type(tensor.dtype))
    return array


def _with_later(
    array: NDArray[Any], axes: Mapping[int, open_axes.OpenAxis], part: int, later: float
) -> NDArray[Any]:
    """An array with other numbers after the part of a call."""
    if not axes:
        return array
    if array.dtype.kind in "iub":
        result = np.full_like(array, 0 if later < 0 else 1)
    else:
        result = np.full_like(array, later)
    inside = _inside(array, axes, part)
    result[inside] = array[inside]
    return result


def _inside(
    array: NDArray[Any], axes: Mapping[int, open_axes.OpenAxis], part: int
) -> tuple[NDArray[Any], ...]:
    """The indices of the elements of a call's part."""
    kept = []
    for number, extent in enumerate(array.shape):
        indices = np.arange(extent)
        if axis := axes.get(number):
            indices = indices[indices % (extent // axis.repeats) < axis.of(part)]
        kept.append(indices)
    return np.ix_(*kept)


def _parts(outputs: Arrays, sizes: OpenSizes, part: int) -> Iterator[bytes]:
    for output, axes in zip(outputs, sizes, strict=False):
        yield output[_inside(output, axes, part)].tobytes()
