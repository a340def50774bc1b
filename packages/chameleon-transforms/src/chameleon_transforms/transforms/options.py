"""Options of the transforms. Cheap to import."""

from __future__ import annotations

import attrs
from attrs import validators


def _factors(*default: int, what: str) -> tuple[int, ...]:
    made: tuple[int, ...] = attrs.field(
        default=default,
        validator=validators.deep_iterable(validators.ge(2)),
        metadata={"help": what},
    )
    return made


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of ``group``."""

    groups: tuple[int, ...] = _factors(2, 4, 8, 16, what="numbers of groups")


@attrs.frozen(kw_only=True)
class BottleneckOptions:
    """Options of ``bottleneck``, ``input-bottleneck`` and ``low-rank``."""

    factors: tuple[int, ...] = _factors(2, 4, 8, what="what the number of channels is divided by")


@attrs.frozen(kw_only=True)
class SplitOptions:
    """Options of ``split-outputs`` and ``split-rows``."""

    groups: tuple[tuple[int, ...], ...] = attrs.field(
        default=((1, 2), (2, 4), (4, 8), (2, 2, 4, 4)),
        metadata={"help": "numbers of groups, one for each part"},
    )


@attrs.frozen(kw_only=True)
class MixedOptions:
    """Options of ``mixed-groups``."""

    standard: tuple[int, ...] = _factors(2, 4, 8, what="one part in so many stays standard")
    groups: tuple[int, ...] = _factors(4, 8, what="numbers of groups of the rest")


@attrs.frozen(kw_only=True)
class KernelOptions:
    """Options of ``kernel-shrink``."""

    sizes: tuple[int, ...] = attrs.field(
        default=(1, 3),
        validator=validators.deep_iterable(validators.ge(1)),
        metadata={"help": "smaller filter sizes"},
    )
