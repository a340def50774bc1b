"""Converts ONNX's Fourier transforms to products with a matrix of sines and cosines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx.nodes import Node, dtype_of, normalize_axis, shape_of

op = relax.op
_AXIS_SINCE = 20
"""The version of the standard in which the axis of ``DFT`` became an input."""


def _dft_matrix(length: int, parts: int, *, onesided: bool, inverse: bool) -> NDArray[Any]:
    """The matrix of a Fourier transform, with real and imaginary parts as rows and columns."""
    waves = (np.fft.ifft if inverse else np.fft.fft)(np.eye(length))
    waves = waves[:, : length // 2 + 1] if onesided else waves
    pairs = [np.stack([part.real, part.imag], -1) for part in (waves, 1j * waves)]
    return np.stack(pairs[:parts], 1).reshape(length * parts, -1)


def _irfft_matrix(length: int) -> NDArray[Any]:
    """The matrix from the first half of a real signal's frequencies to the signal."""
    unit = np.eye(length // 2 + 1)
    waves = np.stack([np.fft.irfft(part, length) for part in (unit, 1j * unit)], 1)
    return waves.reshape(-1, length)


def _transform(
    node: Node, signal: Any, axis: int, length: int | None, *, inverse: bool, onesided: bool
) -> Any:
    """A Fourier transform along an axis. The last axis holds the real and the imaginary part."""
    emit, shape = node.emit, shape_of(signal)
    parts, rank = shape[-1], len(shape)
    to_real = inverse and onesided
    length_used = length or (2 * (shape[axis] - 1) if to_real else shape[axis])
    samples_read = length_used // 2 + 1 if to_real else length_used
    if shape[axis] > samples_read:
        signal = emit(op.strided_slice(signal, [axis], [0], [samples_read]))
    elif shape[axis] < samples_read:
        widths = [0] * (2 * rank)
        widths[2 * axis + 1] = samples_read - shape[axis]
        signal = emit(op.nn.pad(signal, widths))
    if to_real:
        matrix, out, parts_left = _irfft_matrix(length_used), length_used, 1
    else:
        matrix = _dft_matrix(length_used, parts, onesided=onesided, inverse=inverse)
        out, parts_left = matrix.shape[1] // 2, 2
    order = [*(place for place in range(rank - 1) if place != axis), axis, rank - 1]
    others = [shape[place] for place in order[:-2]]
    flat = op.reshape(op.permute_dims(signal, order), [math.prod(others), samples_read * parts])
    # Computed in float64, because terms of the sums cancel.
    product = emit(op.matmul(op.astype(flat, "float64"), relax.const(matrix, "float64")))
    transformed = op.reshape(op.astype(product, dtype_of(signal)), [*others, out, parts_left])
    return op.permute_dims(transformed, np.argsort(order).tolist())


def _dft(node: Node) -> Any:
    x = node[0]
    lengths = [] if node[1] is None else node.integers(1)
    axis = int(node.attributes.get("axis", 1))
    if node.opset >= _AXIS_SINCE:
        axis = -2 if node[2] is None else node.integers(2)[0]
    return _transform(
        node,
        x,
        normalize_axis(axis, len(shape_of(x))),
        lengths[0] if lengths else None,
        inverse=bool(node.attributes.get("inverse")),
        onesided=bool(node.attributes.get("onesided")),
    )


def _stft(node: Node) -> Any:
    signal, window = node[0], node[2]
    [step] = node.integers(1)
    length = shape_of(window)[0] if node[3] is None else node.integers(3)[0]
    frames = (shape_of(signal)[1] - length) // step + 1
    places = np.arange(frames)[:, None] * step + np.arange(length)
    cut = node.emit(op.take(signal, relax.const(places, "int64"), 1))
    if window is not None:
        cut = node.emit(op.multiply(cut, op.reshape(window, [length, 1])))
    onesided = bool(node.attributes.get("onesided", 1))
    return _transform(node, cut, 2, None, inverse=False, onesided=onesided)


SIGNALS: Mapping[str, Callable[[Node], Any]] = {"DFT": _dft, "STFT": _stft}
"""Converters by operator."""
