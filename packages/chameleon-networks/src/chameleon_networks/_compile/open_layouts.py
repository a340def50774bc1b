"""Finds the open axes of a network's tensors and operators, by comparison of two sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32
from chameleon_tvm.api import (
    HALVES,
    AttentionSpec,
    BatchMatmulSpec,
    ConvolutionSpec,
    DenseSpec,
    open_axes,
)

from chameleon_networks._compile.sequence.calls import Call, Tensor
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import shape_of

Pair = tuple[int, int]
"""An extent in two networks that differ in one size."""

OpenSizes = Sequence[Mapping[int, open_axes.OpenAxis]]
"""The open axes of each argument of a call, with their extents."""


class NotOpenError(Exception):
    """Kernels of a network cannot end at the size of a call, for the reason given."""


@attrs.define(eq=False)
class OpenLayouts:
    """The open axes of a network's tensors, and where they lie in memory.

    Attributes:
        axes: The extents that differ between the two networks, and how each follows from the size.
    """

    axes: dict[Pair, open_axes.OpenAxis]
    _steps: dict[int, frozenset[tuple[Any, int]]] = attrs.field(factory=dict)

    def learn(self, mine: Tensor, theirs: Tensor) -> None:
        """Learn where open axes lie in the memory of a tensor, if its shape has no others.

        Raises:
            NotOpenError: They lie elsewhere than those of another tensor in the same memory.
        """
        check_constant(mine.storage.constant, theirs.storage.constant)
        differing = differing_axes(mine.shape, theirs.shape)
        if all(pair in self.axes for pair in differing.values()):
            self.keep(mine, {axis: self.axes[pair] for axis, pair in differing.items()})

    def of(
        self,
        mine: Tensor,
        theirs: Tensor,
        like: Collection[open_axes.OpenAxis] = (),
        attempt: int = 0,
    ) -> dict[int, open_axes.OpenAxis]:
        """The open axes of a tensor. One axis may consist of an open one and others.

        Args:
            mine: The tensor.
            theirs: That of the other network.
            like: The axes of inputs. An axis of an output is most likely one of them.
            attempt: The number of the guess, if nothing shows what an axis consists of.

        Raises:
            NotOpenError: An axis has another number of elements for an unknown reason.
        """
        sizes = {}
        for axis, pair in differing_axes(mine.shape, theirs.shape).items():
            options = [self.axes[pair]] if pair in self.axes else self._joined(mine, axis, pair)
            if not options or (len(options) > 1 and id(mine.storage) in self._steps):
                words = f"an axis has {pair[0]} elements, and {pair[1]} for another size"
                raise NotOpenError(words)
            options.sort(key=lambda option: option not in like)
            sizes[axis] = options[min(attempt, len(options) - 1)]
        return sizes

    def keep(self, tensor: Tensor, sizes: Mapping[int, open_axes.OpenAxis]) -> None:
        """Keep where the open axes of a tensor lie in memory.

        Raises:
            NotOpenError: They lie elsewhere than those of another tensor in the same memory.
        """
        # For each open axis, the number of elements from one of it to the next.
        steps = frozenset(
            (own.steps, own.factor * math.prod(tensor.shape[axis + 1 :]))
            for axis, own in sizes.items()
        )
        if self._steps.setdefault(id(tensor.storage), steps) != steps:
            raise NotOpenError("a reshape mixes an open axis with others")

    def _joined(self, tensor: Tensor, place: int, pair: Pair) -> list[open_axes.OpenAxis]:
        """How an axis of a reshaped tensor may consist of an open axis and others.

        The open axis is the outermost of them first, and then the innermost.
        """
        known = self._steps.get(id(tensor.storage))
        inner = math.prod(tensor.shape[place + 1 :])
        options = []
        for (own, other), axis in self.axes.items():
            count, rest = divmod(pair[0], own)
            if rest or pair[1] != count * other:
                continue
            factors = [count, 1]
            if known is not None:
                factors = sorted(step // inner for steps, step in known if steps == axis.steps)
            options += [
                attrs.evolve(axis, extent=pair[0], factor=factor, repeats=count // factor)
                for factor in factors
                if factor and count % factor == 0
            ]
        return options

    def operator(
        self, group: FusionGroup, other: FusionGroup, call: Call, sizes: OpenSizes
    ) -> Mapping[str, open_axes.OpenAxis]:
        """The open axes of an operator whose kernel may end with a call.

        Args:
            group: The operator's fusion group.
            other: That of the network with another size.
            call: The call of the operator.
            sizes: The open axes of the call's tensors.

        Raises:
            NotOpenError: The operator sums over an open axis.
        """
        constants = group.constants.arrays, other.constants.arrays
        for own, another in itertools.zip_longest(*constants):
            check_constant(own, another)
        spec: Any = group.spec
        mine, theirs = spec.arguments(), other.spec.arguments()
        pairs: Mapping[str, Any] = {n: (mine.get(n), theirs.get(n)) for n in mine | theirs}
        differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if not differing:
            return {}
        if isinstance(spec, AttentionSpec) and differing.keys() <= _ATTENDED:
            return self._attention(pairs, sizes[0])
        if isinstance(spec, BatchMatmulSpec) and differing.keys() <= {"a", "b"}:
            if mine["a"][2] != theirs["a"][2]:
                raise NotOpenError(f"{spec.kind} {spec.sizes} sums over an open axis")
            return {}  # other matrices, rows and columns are computed too
        if not isinstance(spec, DenseSpec | ConvolutionSpec) or differing.keys() != {"input"}:
            raise NotOpenError(f"{spec.kind} {spec.sizes} differs in {', '.join(differing)}")
        axes = differing_axes(*differing["input"])
        if axes.keys() != {0}:
            return self._image(spec, other.spec, axes)
        return _rows(spec, call.arguments[0], sizes[0])

    def learn_image(self, group: FusionGroup, other: FusionGroup) -> None:
        """Learn how the size of a convolution's output follows from that of its input."""
        if isinstance(group.spec, ConvolutionSpec) and type(group.spec) is type(other.spec):
            axes = differing_axes(group.spec.input, other.spec.arguments()["input"])
            if axes and 0 not in axes:
                self._image(group.spec, other.spec, axes)

    def learn_pool(self, pool: Any, other: Any) -> None:
        """Learn how the size of a pooling's output follows from that of its input.

        Args:
            pool: The binding of a pooling operator.
            other: That of the network with another size.
        """
        numbers, rank = pool.value.attrs, len(pool.value.attrs.pool_size)
        inputs = differing_axes(shape_of(pool.value.args[0]), shape_of(other.value.args[0]))
        outputs = differing_axes(shape_of(pool.var), shape_of(other.var))
        first = str(numbers.layout).find("DHW"[-rank])
        for place, pair in inputs.items():
            axis, number = self.axes.get(pair), place - first
            if axis is None or place not in outputs or not 0 <= number < rank:
                continue
            stride, size = int(numbers.strides[number]), int(numbers.pool_size[number])
            covered = (size - 1) * int(numbers.dilation[number]) + 1
            pads = int(numbers.padding[number]) + int(numbers.padding[number + rank])
            # Rounded up, the last window of a padded image may be left out.
            if numbers.ceil_mode and (pads or stride > covered):
                continue
            step = pads - covered + stride + (stride - 1) * bool(numbers.ceil_mode), stride
            output = open_axes.OpenAxis(extent=outputs[place][0], steps=(*axis.steps, step))
            if self.axes.setdefault(outputs[place], output) != output:
                raise NotOpenError(f"a pooling gives a size that others round to {outputs[place]}")

    def _image(
        self, spec: Any, other: Any, differing: Mapping[int, Pair]
    ) -> Mapping[str, open_axes.OpenAxis]:
        """The open height and width of a convolution; those of its output become known."""
        image = isinstance(spec, ConvolutionSpec) and spec.dtype in {FLOAT32, *HALVES}
        if not image or not differing.keys() <= {*range(2, len(spec.input))[-2:]}:
            raise NotOpenError(f"{spec.kind} {spec.sizes} moves numbers along an open axis")
        axes: dict[str, open_axes.OpenAxis] = {}
        for place, pair in differing.items():
            if pair not in self.axes:
                raise NotOpenError(f"{spec.kind} {spec.sizes} has an unknown size")
            own, output = open_axes.image_axes(spec, place - 2, self.axes[pair])
            axes |= own
            outputs = output.extent, other.output_shape[place]
            if self.axes.setdefault(outputs, output) != output:
                raise NotOpenError(f"{spec.kind} {spec.sizes} has a size that others round")
        return axes

    def _attention(
        self, pairs: Mapping[str, tuple[Any, Any]], queries: Mapping[int, open_axes.OpenAxis]
    ) -> Mapping[str, open_axes.OpenAxis]:
        axes: dict[str, open_axes.OpenAxis] = {}
        for name, (field, place) in _ATTENTION_AXES.items():
            mine, theirs = pairs[field]
            pair = mine[place], theirs[place]
            if pair in self.axes:
                axes[name] = self.axes[pair]
            elif pair[0] != pair[1] and name != open_axes.BATCH:
                raise NotOpenError("attention has other elements along an open axis")
            elif pair[0] != pair[1] and 0 in queries and queries[0].extent == pair[0]:
                axes[name] = queries[0]
        return axes


_ATTENDED = {"query", "key", "value", "mask"}

_ATTENTION_AXES = {
    open_axes.BATCH: ("query", 0),
    open_axes.QUERIES: ("query", 2),
    open_axes.KEYS: ("key", 2),
}
"""The arguments of attention that have an axis, and its place in them."""


def _rows(
    spec: Any, data: Tensor, sizes: Mapping[int, open_axes.OpenAxis]
) -> Mapping[str, open_axes.OpenAxis]:
    """The open rows of a dense layer, or the open batch of a convolution."""
    place = next((axis for axis, extent in enumerate(data.shape) if extent > 1), 0)
    axis = sizes.get(place)
    # Rows of earlier axes would lie behind those of a smaller call.
    if axis is None or axis.repeats > 1:
        return {}
    extent = spec.input[0]
    rows = attrs.evolve(axis, extent=extent, factor=axis.factor * (extent // axis.extent))
    if isinstance(spec, DenseSpec):
        return {open_axes.WIDTH: rows, open_axes.INPUT_WIDTH: rows}
    return {open_axes.BATCH: rows}


def differing_axes(mine: Sequence[int], theirs: Sequence[int]) -> dict[int, Pair]:
    """The axes of a tensor whose extents differ, with both extents.

    Raises:
        NotOpenError: The tensors have different ranks.
    """
    if len(mine) != len(theirs):
        raise NotOpenError("a tensor has another rank for another size")
    pairs = enumerate(zip(mine, theirs, strict=True))
    return {axis: pair for axis, pair in pairs if pair[0] != pair[1]}


def check_constant(mine: Any, theirs: Any) -> None:
    """Check that a constant for the smaller size is the beginning of that for the larger size.

    Raises:
        NotOpenError: It has other values.
    """
    if mine is theirs:
        return
    same = mine is not None and theirs is not None and mine.ndim == theirs.ndim
    if same:
        both = tuple(map(slice, np.minimum(mine.shape, theirs.shape)))
        same = mine[both].tobytes() == theirs[both].tobytes()
    if not same:
        raise NotOpenError("a constant has other values for another size")
