"""Layouts of images, by name: cheap to import."""

from __future__ import annotations

import re

from chameleon_core.errors import ConfigError

LAYOUT_HINT = "Layouts are NCHW, NHWC and blocked ones such as NCHW16c."
_BLOCKED = re.compile(r"NCHW([1-9]\d*)c")


def channel_block(layout: str) -> int:
    """Channels per block of a blocked layout; 0 for NCHW and NHWC.

    Raises:
        ConfigError: no such layout.
    """
    if layout in {"NCHW", "NHWC"}:
        return 0
    match = _BLOCKED.fullmatch(layout)
    if match is None:
        raise ConfigError(f"{layout!r} is not a layout", hint=LAYOUT_HINT)
    return int(match[1])


def physical_shape(shape: tuple[int, int, int, int], layout: str) -> tuple[int, ...]:
    """The shape of an (N, C, H, W) array in a layout."""
    n, c, h, w = shape
    if layout == "NCHW":
        return shape
    if layout == "NHWC":
        return (n, h, w, c)
    block = channel_block(layout)
    return (n, c // block, h, w, block)
