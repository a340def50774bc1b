"""Attention: its TensorIR function and a float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Arrays
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._late_tvm import te, tirx, tvm
from chameleon_tvm._operators.attention_specs import ordered
from chameleon_tvm._operators.base import TypedOperator, seeded_array
from chameleon_tvm._types import STORAGE

_HIDDEN_ONE_IN = 7
"""In masks for measurements, one element in this many hides a key."""


class Attention(TypedOperator):
    """The operator of attention.

    Inputs are query, key and value, or one packed array of the three; then the mask, if any, in
    float32.
    """

    def inputs(self) -> Arrays:
        spec = self.spec
        parts = [spec.query, spec.key, spec.value]
        arrays = [seeded_array(shape, spec.dtype, stream) for stream, shape in enumerate(parts)]
        if spec.packed:
            arrays = [np.concatenate(arrays, axis=1)]
        if spec.mask:
            mask = seeded_array(spec.mask, "float32", len(parts))
            mask.reshape(-1)[::_HIDDEN_ONE_IN] = -np.inf
            arrays.append(mask)
        return arrays

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        if index >= (1 if self.spec.packed else 3):
            return array
        _, _, layout = self.spec.parts[index]
        moved = np.ascontiguousarray(array.transpose(_axes(layout)))
        return STORAGE[self.spec.dtype].stored(moved)

    def logical(self, outputs: Arrays) -> Arrays:
        back = np.argsort(_axes(self.spec.output_layout))
        kind = STORAGE[self.spec.output_dtype]
        return [np.ascontiguousarray(kind.real(array).transpose(back)) for array in outputs]

    def reference(self, inputs: Arrays) -> Arrays:
        spec = self.spec
        inputs64 = [array.astype(np.float64) for array in inputs]
        query, key, value, *mask = self._parts(inputs64)
        key, value = (np.repeat(part, spec.group, axis=1) for part in (key, value))
        scores = spec.scale * (query @ key.swapaxes(2, 3))
        for added in mask:
            scores = scores + added
        if spec.causal:
            visible = np.tri(*spec.scores[2:], dtype=np.bool_)
            scores = np.where(visible, scores, -np.inf)
        maxima = scores.max(axis=3, keepdims=True)
        exponentials = np.exp(scores - np.where(np.isfinite(maxima), maxima, 0.0))
        sums = exponentials.sum(axis=3, keepdims=True)
        return [(exponentials / np.where(sums > 0.0, sums, 1.0)) @ value]

    def _parts(self, inputs: Arrays) -> Arrays:
        if not self.spec.packed:
            return inputs
        packed, *mask = inputs
        return [*np.split(packed, self.spec.first_heads[1:], axis=1), *mask]

    def prim_func(self) -> tvm.tirx.PrimFunc:
        spec = self.spec
        kind = STORAGE[spec.dtype]
        arrays = {
            name: te.placeholder(ordered(shape, layout), kind.storage_dtype, name=name)
            for name, shape, layout in spec.parts
        }
        mask = [te.placeholder(spec.mask, "float32", name="mask")] if spec.mask else []

        def element(part: int, b: Any, h: Any, s: Any, d: Any) -> Any:
            name, _, layout = spec.parts[part]
            indices = dict(zip("BHSD", (b, h + spec.first_heads[part], s, d), strict=True))
            return emit.widening(kind, arrays[name](*(indices[axis] for axis in layout)))

        d = te.reduce_axis((0, spec.query[3]), name="d")

        def product(b: Any, h: Any, q: Any, k: Any) -> Any:
            left = element(0, b, h, q, d)
            return te.sum(left * element(1, b, h // spec.group, k, d), axis=d)

        products = te.compute(spec.scores, product, name="products")

        def score_of(b: Any, h: Any, q: Any, k: Any) -> Any:
            score = products[b, h, q, k] * tirx.FloatImm("float32", spec.scale)
            for added in mask:
                indices = (
                    0 if extent == 1 else at
                    for extent, at in zip(spec.mask, (b, h, q, k), strict=True)
                )
                score = score + added(*indices)
            return tirx.Select(k <= q, score, -tirx.infinity("float32")) if spec.causal else score

        scores = te.compute(spec.scores, score_of, name="scores")
        j = te.reduce_axis((0, spec.scores[3]), name="j")
        rows = spec.scores[:3]
        maxima = te.compute(rows, lambda b, h, q: te.max(scores[b, h, q, j], axis=j), name="most")
        exponentials = te.compute(
            spec.scores,
            lambda b, h, q, k: tirx.exp(scores[b, h, q, k] - maxima[b, h, q]),
            name="powers",
        )
        i = te.reduce_axis((0, spec.scores[3]), name="i")
        sums = te.compute(
            rows, lambda b, h, q: te.sum(exponentials[b, h, q, i], axis=i), name="sums"
        )
        # The largest score adds 1; if every key is hidden, the sums are 0. The sum of the values
        # comes last, since TVM's rules cannot tile a sum into a step that reads other sums.
        probabilities = te.compute(
            spec.scores,
            lambda b, h, q, k: exponentials[b, h, q, k] / tirx.max(sums[b, h, q], 1.0),
            name="shares",
        )
        t = te.reduce_axis((0, spec.scores[3]), name="t")

        def weighted_sum(*indices: Any) -> Any:
            b, h, q, d = (indices[spec.output_layout.index(axis)] for axis in "BHSD")
            return te.sum(probabilities[b, h, q, t] * element(2, b, h // spec.group, t, d), axis=t)

        shape = ordered(spec.output, spec.output_layout)
        out = result = te.compute(shape, weighted_sum, name="attention")
        if spec.output_dtype != "float32":
            output_type = STORAGE[spec.output_dtype]
            out = te.compute(shape, lambda *at: emit.rounding(output_type, result(*at)), name="out")
        return te.create_prim_func([*arrays.values(), *mask, out])


def _axes(layout: str) -> list[int]:
    """Positions of a layout's axes in a logical array (batch, heads, tokens, features)."""
    return ["BHSD".index(axis) for axis in layout]
