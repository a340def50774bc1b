"""The input shapes that a pipeline file asks for; an axis may have several sizes (buckets)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import cattrs
from chameleon_core.plugin_api import ConfigError

MOST = 16
"""Most combinations of extents in one pipeline. Each is a network to compile and verify."""

_NAME = re.compile(r"[A-Za-z_]\w*")


def _sorted(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(extents))


def _extents(_: Any, __: Any, value: tuple[int, ...]) -> None:
    if not value or min(value) < 1 or len(set(value)) < len(value):
        raise ValueError(f"must be different whole numbers above 0, not {list(value)}")


def _word(_: Any, __: Any, value: str | None) -> None:
    if value is not None and not _NAME.fullmatch(value):
        raise ValueError(f"must be a word of letters, digits and '_', not {value!r}")


@attrs.frozen(kw_only=True)
class Buckets:
    """The extents that one axis of an input may have.

    Attributes:
        buckets: The extents, ascending.
        pad: The value that is appended to a smaller input, up to the next extent. None if inputs
            must have one of the extents exactly.
        name: The name of the dimension, or None. Axes with the same name always have the same
            extent. Axes without a name that have the same ``buckets`` have the same extent too.
    """

    buckets: tuple[int, ...] = attrs.field(converter=_sorted, validator=_extents)
    pad: float | None = None
    name: str | None = attrs.field(default=None, validator=_word)


Shape = Sequence[int | Buckets]


@attrs.frozen(kw_only=True)
class Axis:
    """An axis of one of a network's inputs.

    Attributes:
        input: The name of the input.
        axis: The number of the axis, from 0.
        pad: The value that a smaller input is padded with along this axis. None if the input must
            not be padded.
    """

    input: str
    axis: int
    pad: float | None

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.input}"


@attrs.frozen(kw_only=True)
class Dimension:
    """Axes of inputs that always have the same extent, such as the batch axes of all inputs.

    Attributes:
        name: The name of the dimension in the pipeline file, or None.
        buckets: The extents of the dimension, ascending.
        axes: The axes that have this dimension.
    """

    name: str | None
    buckets: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def padded(self) -> bool:
        """Whether inputs that are smaller along this dimension may be padded to its next extent."""
        return self.axes[0].pad is not None

    def __str__(self) -> str:
        return self.name or str(self.axes[0])


def dimensions_of(shapes: Mapping[str, Shape]) -> tuple[Dimension, ...]:
    """Find the dimensions that have several extents, in the order of their first axes."""
    groups: dict[Any, list[tuple[Buckets, Axis]]] = {}
    for name, shape in shapes.items():
        for number, extent in enumerate(shape):
            if isinstance(extent, Buckets):
                axis = Axis(input=name, axis=number, pad=extent.pad)
                groups.setdefault(extent.name or extent.buckets, []).append((extent, axis))
    for buckets in [key for key in groups if isinstance(key, tuple)]:
        # Without a name it is the dimension of these extents if only one has a name.
        named = [name for name, (first, *_) in groups.items() if first[0].buckets == buckets]
        if len(named) == 2:  # noqa: PLR2004 - itself and one named dimension
            [other] = [name for name in named if name != buckets]
            groups[other] += groups.pop(buckets)
    return tuple(_dimension(together) for together in groups.values())


def _dimension(together: Sequence[tuple[Buckets, Axis]]) -> Dimension:
    first, _ = together[0]
    axes = tuple(axis for _, axis in together)
    for buckets, axis in together:
        if buckets.buckets != first.buckets:
            raise ConfigError(
                f"{first.name!r} is {list(first.buckets)} on {axes[0]} and "
                f"{list(buckets.buckets)} on {axis}",
                hint="Axes of one name have the same buckets; give the other one another name.",
            )
        if (buckets.pad is None) != (first.pad is None):
            raise ConfigError(
                f"{axes[0]} and {axis} vary together, and only one of them has a `pad`",
                hint="Give both a `pad`, or none, or each a `name` of its own.",
            )
    if first.pad is not None and len(first.buckets) == 1:
        raise ConfigError(
            f"{axes[0]} has a `pad` and one bucket alone",
            hint="Name at least two: Chameleon cuts outputs by how they differ between them.",
        )
    return Dimension(name=first.name, buckets=first.buckets, axes=axes)


def check_shapes(shapes: Mapping[str, Shape]) -> None:
    """Check the input shapes that a pipeline file asks for."""
    for name, shape in shapes.items():
        if any(isinstance(extent, int) and extent < 1 for extent in shape):
            raise ConfigError(
                f"the shape of {name!r} has an extent below 1", hint="Extents are above 0."
            )
    dimensions = dimensions_of(shapes)
    count = math.prod(len(dimension.buckets) for dimension in dimensions)
    if count > MOST:
        raise ConfigError(
            f"the buckets of {', '.join(map(str, dimensions))} make {count} combinations, and "
            f"{MOST} is the most there can be",
            hint="Name fewer buckets, or give axes that vary together the same `name`.",
        )


@attrs.frozen(kw_only=True)
class Bucket:
    """One combination of extents, for which a network is compiled.

    Attributes:
        name: The name of the combination, such as ``64``, ``8-64`` or ``batch=8-length=64``. The
            name can serve as a file name.
        extents: One extent for each dimension.
        shapes: The shapes of the inputs with these extents, by input name.
    """

    name: str
    extents: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]]


def buckets_of(shapes: Mapping[str, Shape]) -> tuple[Bucket, ...]:
    """All combinations (buckets) of the extents in a pipeline file, the smallest extents first."""
    dimensions = dimensions_of(shapes)
    product = itertools.product(*(dimension.buckets for dimension in dimensions))
    return tuple(bucket_with(shapes, dimensions, extents) for extents in product)


def bucket_with(
    shapes: Mapping[str, Shape], dimensions: Sequence[Dimension], extents: Sequence[int]
) -> Bucket:
    """Make one combination of extents, which need not be one that the pipeline file lists."""
    chosen = {
        (axis.input, axis.axis): extent
        for dimension, extent in zip(dimensions, extents, strict=True)
        for axis in dimension.axes
    }
    fixed = {
        name: tuple(
            chosen[name, number] if isinstance(extent, Buckets) else extent
            for number, extent in enumerate(shape)
        )
        for name, shape in shapes.items()
    }
    words = [
        f"{dimension.name}={extent}" if dimension.name else str(extent)
        for dimension, extent in zip(dimensions, extents, strict=True)
    ]
    return Bucket(name="-".join(words), extents=tuple(extents), shapes=fixed)


def converter() -> cattrs.Converter:
    """A cattrs converter that reads options from JSON; an extent is an int or ``Buckets``."""
    conv = cattrs.Converter()
    conv.register_structure_hook(
        int | Buckets,
        lambda value, _: conv.structure(value, Buckets) if isinstance(value, dict) else int(value),
    )
    return conv
