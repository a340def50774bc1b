"""Functions that read names of image layouts, such as NHWC, without importing TVM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from chameleon_core.plugin_api import ConfigError

LAYOUT_HINT = (
    "Layouts are NCHW, NHWC and blocked ones such as NCHW16c; with one spatial axis NCW, NWC, "
    "with three NCDHW, NDHWC."
)
SPATIAL = "DHW"
"""Names of the spatial axes. A 2-D image has H and W, a 1-D image has W."""
_FIRST = re.compile(r"NC(D?HW|W)(?:([1-9]\d*)c)?")
_LAST = re.compile(r"N(D?HW|W)C")


def channels_first(rank: int) -> str:
    """The layout with channels before the spatial axes, such as NCHW."""
    return f"NC{SPATIAL[-rank:]}"


def channels_last(rank: int) -> str:
    """The layout with channels after the spatial axes, such as NHWC."""
    return f"N{SPATIAL[-rank:]}C"


def is_channels_last(layout: str) -> bool:
    """Whether a layout has channels after the spatial axes."""
    return layout.endswith("C")


def spatial_rank(layout: str) -> int:
    """Number of spatial axes of a layout.

    Args:
        layout: The name of the layout, such as NCHW.

    Raises:
        ConfigError: The string is not the name of a layout.
    """
    return len(_match(layout)[1])


def with_rank(layout: str, rank: int) -> str:
    """A layout with another number of spatial axes, such as NCW for NCHW."""
    return layout.replace(_match(layout)[1], SPATIAL[-rank:])


def channel_block(layout: str) -> int:
    """Number of channels that a layout such as NCHW16c keeps together, or 0.

    It is 0 for layouts with channels first or last.

    Raises:
        ConfigError: The string is not the name of a layout.
    """
    if is_channels_last(layout):
        _match(layout)
        return 0
    return int(_match(layout)[2] or 0)


def physical_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The shape in memory of an image of logical shape (N, C, spatial axes) in a layout.

    Args:
        shape: The logical shape of the image.
    """
    n, c, *spatial = shape
    if is_channels_last(layout):
        return (n, *spatial, c)
    block = channel_block(layout)
    return (n, c // block, *spatial, block) if block else shape


def physical_index(indices: Sequence[Any], layout: str) -> list[Any]:
    """The index in memory of an element of an image in a layout."""
    n, c, *at = indices
    if is_channels_last(layout):
        return [n, *at, c]
    block = channel_block(layout)
    return [n, c // block, *at, c % block] if block else [*indices]


def _match(layout: str) -> re.Match[str]:
    match = _LAST.fullmatch(layout) or _FIRST.fullmatch(layout)
    if match is None:
        raise ConfigError(f"{layout!r} is not a layout", hint=LAYOUT_HINT)
    return match
