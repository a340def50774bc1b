"""Lowers normalizations to means of distances: from one element, and then from the mean.

TVM subtracts the square of the mean from the mean of squares, which leaves only rounding errors if
the mean is large. Distances from an element are small then, and zero if all elements are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import te, tirx

from chameleon_networks._graph.relax_utils import operator_name, shape_of, tvm

DISTANCES = "chameleon.distances"
"""An annotation of blocks that add up distances from an element or from a mean."""

_LAYER_NORM = "layer_norm"
_NARROW, _WIDE = "float32", "float64"


@attrs.frozen(kw_only=True)
class _Normalization:
    """A layer, group or instance normalization.

    Attributes:
        shape: The shape of the data.
        axes: The axes over which means are taken. With groups, the axis of channels is one of them.
        kept: The axes of a mean. With groups, the axis of channels is one of them.
        extents: For each axis, the number of elements over which a mean is taken.
        scaled: The axes of the scale and the shift.
    """

    name: str
    shape: Sequence[int]
    axes: Sequence[int]
    kept: Sequence[int]
    extents: Sequence[int]
    scaled: Sequence[int]
    epsilon: float
    affine: bool

    @classmethod
    def of(cls, call: Any) -> _Normalization:
        known, shape, name = call.attrs, shape_of(call), operator_name(call)
        name = name.removeprefix("relax.nn.")
        axes = {int(axis) % len(shape) for axis in known.axes}
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        extents = [size if axis in axes else 1 for axis, size in enumerate(shape)]
        scaled = sorted(axes) if name == _LAYER_NORM else [int(known.channel_axis) % len(shape)]
        if name == "group_norm":
            axes.update(scaled)
            extents[scaled[0]] = shape[scaled[0]] // int(known.num_groups)
        return cls(
            name=name,
            shape=shape,
            axes=sorted(axes),
            kept=kept,
            extents=extents,
            scaled=scaled,
            epsilon=float(known.epsilon),
            affine=bool(known.scale or known.center),
        )

    def apply(self, source: Any, *parameters: Any) -> Any:
        """The normalized tensor of data, a scale and a shift."""
        kind = _NARROW if "16" in str(source.dtype) else str(source.dtype)
        x, gamma, beta = (_cast(tensor, kind) for tensor in (source, *parameters))
        linear = self.affine and self.name != _LAYER_NORM
        center, factor = self._statistics(x, wide_root=linear)
        if linear:
            result = self._linear(x, center, factor, gamma, beta)
        else:
            result = self._distant(x, center, factor, gamma, beta)
        return _cast(result, str(source.dtype))

    def _statistics(self, x: Any, *, wide_root: bool) -> tuple[Any, Any]:
        """The mean of each group, and one over its deviation, computed in float64 and rounded."""
        kind, groups = str(x.dtype), [self.shape[axis] // self.extents[axis] for axis in self.kept]
        first = te.compute(groups, lambda *at: self._element(x, at), name="first")
        offset = self._mean(x, groups, "offset", lambda number, at: number - first(*at))

        def mean(*at: Any) -> Any:
            return (first(*at).astype(_WIDE) + offset(*at)).astype(kind)

        center = te.compute(groups, mean, name="center")

        def square(number: Any, at: Sequence[Any]) -> Any:
            return (number - center(*at)) * (number - center(*at))

        spread = self._mean(x, groups, "spread", square)
        epsilon = tirx.const(self.epsilon, _WIDE)
        # The scale's last bit decides what it and the shift leave of a constant image.
        root = _WIDE if wide_root else kind

        def inverse(*at: Any) -> Any:
            return tirx.rsqrt((spread(*at) + epsilon).astype(root)).astype(kind)

        factor = te.compute(groups, inverse, name="factor")
        return center, factor

    def _element(
        self, x: Any, group: Sequence[Any], inside: Mapping[int, Any] | None = None
    ) -> Any:
        """An element of a group, by default its first."""
        at: dict[int, Any] = dict.fromkeys(self.axes, 0) | dict(zip(self.kept, group, strict=True))
        for axis in self.axes:
            place = 0 if inside is None else inside[axis]
            at[axis] = at[axis] * self.extents[axis] + place if axis in self.kept else place
        return x(*(at[axis] for axis in range(len(self.shape))))

    def _mean(
        self, x: Any, groups: Sequence[int], name: str, term: Callable[[Any, Sequence[Any]], Any]
    ) -> Callable[..., Any]:
        """The mean, in float64, of terms that depend on an element and its group."""
        inside = {axis: te.reduce_axis((0, self.extents[axis]), f"k{axis}") for axis in self.axes}

        def total(*group: Any) -> Any:
            return te.sum(term(self._element(x, group, inside), group), axis=[*inside.values()])

        whole = te.compute(groups, total, name=f"{name}_sum", attrs={DISTANCES: True})
        share = tirx.const(1.0 / math.prod(self.extents), _WIDE)
        return lambda *at: whole(*at).astype(_WIDE) * share

    def _group(self, at: Mapping[int, Any]) -> list[Any]:
        """The group of an element or of a channel."""
        return [at[axis] // self.extents[axis] for axis in self.kept]

    def _distant(self, x: Any, center: Any, factor: Any, gamma: Any, beta: Any) -> Any:
        def value(*at: Any) -> Any:
            group, own = self._group(dict(enumerate(at))), [at[axis] for axis in self.scaled]
            result = (x(*at) - center(*group)) * factor(*group)
            return result * gamma(*own) + beta(*own) if self.affine else result

        return te.compute(self.shape, value, name="normalized")

    def _linear(self, x: Any, center: Any, factor: Any, gamma: Any, beta: Any) -> Any:
        """The result by a scale and a shift for each channel, as in torch."""
        channels = [self.shape[axis] for axis in self.kept]
        channel = self.kept.index(self.scaled[0])

        def group(at: Sequence[Any]) -> list[Any]:
            return self._group(dict(zip(self.kept, at, strict=True)))

        scale = te.compute(
            channels, lambda *at: factor(*group(at)) * gamma(at[channel]), name="scale"
        )

        def shifted(*at: Any) -> Any:
            product = scale(*at).astype(_WIDE) * center(*group(at)).astype(_WIDE)
            return (beta(at[channel]).astype(_WIDE) - product).astype(str(x.dtype))

        shift = te.compute(channels, shifted, name="shift")

        def value(*at: Any) -> Any:
            own = [at[axis] for axis in self.kept]
            return tirx.op.fma(x(*at), scale(*own), shift(*own))

        return te.compute(self.shape, value, name="normalized")


def _cast(tensor: Any, dtype: str) -> Any:
    """A tensor in another dtype, without the copy that ``topi.cast`` makes if it is the same."""
    return tensor if str(tensor.dtype) == dtype else tvm.topi.cast(tensor, dtype)


def _lower(builder: Any, call: Any) -> Any:
    normalization = _Normalization.of(call)
    return builder.call_te(normalization.apply, *call.args, primfunc_name_hint=normalization.name)


NORMALIZATIONS = {f"relax.nn.{name}_norm": _lower for name in ("instance", "group", "layer")}
"""Functions that lower a normalization, by its name."""
