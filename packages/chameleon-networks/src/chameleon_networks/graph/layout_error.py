"""What a change of layouts ends in where it cannot be made."""

from __future__ import annotations

from chameleon_core.errors import ConfigError


class LayoutError(ConfigError):
    """A network cannot be converted to a layout; it may well be to another one."""


NEXT_STEP = "Try `layout: NCHW` in the model's section."
"""What to do about it."""
