"""Shapes of tensors in a graph as tuples of integers."""

from __future__ import annotations

from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_tvm.quick_tvm import tirx


def known_extents(kind: Any) -> tuple[int, ...] | None:
    """The extents of a type; None if it is no tensor's, or one of them is open.

    Passes over a graph ask for little else. Extents come from the list of all of them, since
    asking Relax's shape for one after the other takes four times as long.

    Args:
        kind: the type of an expression, or a buffer.
    """
    shape = getattr(kind, "shape", None)
    if shape is None:
        return None
    extents = getattr(shape, "values", shape)
    known = [int(extent.value) for extent in extents if isinstance(extent, tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def extents_of(kind: Any) -> tuple[int, ...]:
    """The extents of a tensor's type, all of which have to be known.

    Raises:
        ConfigError: not every extent is known.
    """
    known = known_extents(kind)
    if known is None:
        raise ConfigError(
            f"the network has a tensor of unknown shape: {kind}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return known
