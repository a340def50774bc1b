"""The input shapes that a pipeline file asks for; an axis may have several sizes (buckets)."""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
import cattrs
from chameleon_core.plugin_api import ConfigError

MOST = 64
"""Most combinations of extents in one pipeline. Each is a network to compile and verify."""

_COUNT = 16
"""Most buckets of a range, unless the pipeline file names another number."""

_LEAST_GAIN = 0.01
"""How much faster, on average, calls have to become for one more bucket of a range."""

_FIXED = 4
"""The time of a call that does not depend on its extent, such as the time to read weights. Its unit
is the time for one element of the axis."""

_UNLIKE = 0.05
"""How much longer a call takes for each doubling of the extent that its kernels were tuned for."""

_QUANTILES = (0.0, 0.4, 0.8, 1.0)
"""Quantiles of a range's distribution at which the network is timed beside other frameworks."""

_NAME = re.compile(r"[A-Za-z_]\w*")


def _sorted(extents: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(extents))


def _extents(_: Any, __: Any, value: tuple[int, ...]) -> None:
    if value and (min(value) < 1 or len(set(value)) < len(value)):
        raise ValueError(f"must be different whole numbers above 0, not {list(value)}")


def _ends(_: Any, __: Any, value: tuple[int, int] | None) -> None:
    if value is not None and not 1 <= value[0] < value[1]:
        raise ValueError(
            f"must be the smallest extent, at least 1, and a larger one, not {list(value)}"
        )


def _word(_: Any, __: Any, value: str | None) -> None:
    if value is not None and not _NAME.fullmatch(value):
        raise ValueError(f"must be a word of letters, digits and '_', not {value!r}")


@attrs.frozen(kw_only=True)
class Buckets:
    """The extents that one axis of an input may have.

    Attributes:
        buckets: The extents for which the network is compiled, ascending. For a ``range``,
            Chameleon chooses them if they are not given.
        range: The smallest and the largest extent of an axis that may have any extent between them.
        sizes: Extents that calls will have. By default, all extents of the range, whose logarithms
            are evenly distributed.
        weights: How often calls will have each extent of ``sizes``; by default, equally often.
        count: The largest number of buckets that Chameleon chooses for the range.
        pad: The value that is appended to a smaller input, up to the next extent. None if inputs
            must have one of the extents exactly. A range is padded with 0 by default.
        name: The name of the dimension, or None. Axes with the same name always have the same
            extent. Axes without a name that have the same ``buckets`` have the same extent too.
    """

    buckets: tuple[int, ...] = attrs.field(default=(), converter=_sorted, validator=_extents)
    range: tuple[int, int] | None = attrs.field(default=None, validator=_ends)
    sizes: tuple[int, ...] = attrs.field(default=(), validator=_extents)
    weights: tuple[float, ...] = ()
    count: int = _COUNT
    pad: float | None = None
    name: str | None = attrs.field(default=None, validator=_word)

    def __attrs_post_init__(self) -> None:
        if self.range is None:
            if not self.buckets:
                raise ValueError("needs `buckets`, which are different whole numbers above 0")
            if self.sizes or self.weights or self.count != _COUNT:
                raise ValueError("has `sizes`, `weights` or `count`, which need a `range`")
            return
        least, most = self.range
        if any(not least <= size <= most for size in self.sizes):
            raise ValueError(f"has `sizes` outside of its range, {least} to {most}")
        if len(self.weights) not in {0, len(self.sizes)} or any(w <= 0 for w in self.weights):
            raise ValueError("must have a weight above 0 for each of its `sizes`")
        if self.count < 2:  # noqa: PLR2004 - outputs are cut by how they differ between two
            raise ValueError("must have a `count` of at least 2")
        # The file of a run keeps the buckets, which another version might choose otherwise.
        buckets = self.buckets or _spaced(self.distribution, self.range, self.count)
        if buckets[-1] != most or len(buckets) == 1:
            raise ValueError(f"must have several `buckets` up to {most}, the end of its range")
        object.__setattr__(self, "buckets", buckets)
        object.__setattr__(self, "pad", self.pad or 0.0)

    @property
    def distribution(self) -> dict[int, float]:
        """The share of calls with each extent of a range, ascending by extent."""
        if self.sizes:
            shares = dict(zip(self.sizes, self.weights or [1.0] * len(self.sizes), strict=True))
        else:
            least, most = self.range or (1, 1)
            shares = {extent: 1.0 / extent for extent in range(least, most + 1)}
        total = sum(shares.values())
        return {extent: shares[extent] / total for extent in sorted(shares)}

    @property
    def probes(self) -> tuple[int, ...]:
        """The extents of a range at which the network is timed; none without a range."""
        if self.range is None:
            return ()
        shares = self.distribution
        sums = list(itertools.accumulate(shares.values()))
        indices = (bisect.bisect_left(sums, quantile * sums[-1]) for quantile in _QUANTILES)
        extents = list(shares)
        return tuple(dict.fromkeys(extents[index] for index in indices))


def _spaced(shares: Mapping[int, float], span: tuple[int, int], count: int) -> tuple[int, ...]:
    """The buckets with which calls take the least time on average, at most ``count`` of them.

    A call takes the time of its bucket, which grows with the bucket's extent. The buckets are
    multiples of 8 and numbers below 16.
    """
    ends = _candidates(*span, set(shares) if len(shares) <= _COUNT else set())
    return _cheapest(ends, shares, count, lambda _, bucket: bucket)


def open_buckets(buckets: Sequence[int], shares: Mapping[int, float]) -> tuple[int, ...]:
    """The buckets that a network needs whose calls compute a part of their bucket.

    A call takes the time of its own extent, and longer if kernels were tuned for a larger one.

    Args:
        buckets: The buckets to choose from.
        shares: The share of calls with each extent.
    """

    def computed(extent: int, bucket: int) -> float:
        return extent * (1.0 + _UNLIKE * math.log2(bucket / extent))

    return _cheapest(buckets, shares, len(buckets), computed)


def _cheapest(
    ends: Sequence[int],
    shares: Mapping[int, float],
    count: int,
    computed: Callable[[int, int], float],
) -> tuple[int, ...]:
    """The buckets with which calls take the least time on average, at most ``count`` of them.

    Each bucket has to pay for its size on disk with ``_LEAST_GAIN``. Dynamic programming finds the
    best buckets.

    Args:
        ends: The buckets to choose from, ascending.
        shares: The share of calls with each extent.
        computed: A function of an extent and of its bucket. It returns the time of the call, which
            is the extent if the call computes nothing else.
    """
    extents = sorted(shares)
    places = [0, *(bisect.bisect_right(extents, end) for end in ends)]

    def losses(end: int) -> list[float]:
        """The time that calls lose in a bucket, summed from the first call on."""
        each = (shares[e] / (e + _FIXED) * (computed(e, end) - e) for e in extents if e <= end)
        return [*itertools.accumulate(each, initial=0.0)]

    sums = [losses(end) for end in ends]

    def lost(first: int, last: int) -> float:
        """The time that calls between two candidates lose in the second one."""
        return sums[last - 1][places[last]] - sums[last - 1][places[first]]

    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ()), *[(math.inf, ())] * len(ends)]
    choices = []
    for used in range(1, min(count, len(ends)) + 1):
        best = [(math.inf, ())] + [
            min(
                (best[first][0] + lost(first, last), (*best[first][1], ends[last - 1]))
                for first in range(last)
            )
            for last in range(1, len(ends) + 1)
        ]
        loss, buckets = best[-1]
        if used > 1:
            choices.append((loss + _LEAST_GAIN * used, buckets))
    return min(choices)[1]


def _candidates(least: int, most: int, sizes: Collection[int]) -> list[int]:
    """Extents that buckets of a range may have, ascending; the last one is the largest extent."""
    extents = {*sizes, most, *range(least, min(most, 16))}
    extent = 16
    while extent < most:
        extents.add(extent)
        extent += max(8, 2 ** (extent.bit_length() - 1) // 8)
    return sorted(extent for extent in extents if least <= extent <= most)


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
        probes: Extents at which the network is timed instead of each bucket; none without a range.
        shares: The share of calls with each extent of a range.
    """

    name: str | None
    buckets: tuple[int, ...]
    axes: tuple[Axis, ...]
    probes: tuple[int, ...] = ()
    shares: Mapping[int, float] = attrs.field(factory=dict, eq=False)

    def spread_out(self) -> tuple[int, ...]:
        """The buckets of a range that are needed if a call computes a part of its bucket."""
        # Many callers use the smallest extent, such as a batch of one, more often than others.
        chosen = open_buckets(self.buckets, self.shares)
        return tuple(sorted({self.buckets[0], *chosen}))

    def bucket_of(self, extent: int) -> int:
        """The bucket that inputs of an extent are padded to."""
        return self.buckets[bisect.bisect_left(self.buckets, extent)]

    @property
    def padded(self) -> bool:
        """Whether inputs that are smaller along this dimension may be padded to its next extent."""
        return self.axes[0].pad is not None

    def takes(self, extent: int) -> bool:
        """Whether inputs of an extent are computed: in a bucket of their own, or padded."""
        return extent in self.buckets or (self.padded and 0 < extent < self.buckets[-1])

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
    return Dimension(
        name=first.name,
        buckets=first.buckets,
        axes=axes,
        probes=first.probes,
        shares=first.distribution if first.range else {},
    )


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
            hint="Name fewer buckets, give a range a smaller `count`, or give axes that vary "
            "together the same `name`.",
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
