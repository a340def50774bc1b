"""Margins by which something may be slower, as users write them."""

from __future__ import annotations

from chameleon_core.plugin_api import ConfigError

MARGIN = 0.03
"""The share of time by which something may be slower, unless the user gives another one."""


def margin_of(text: str | None) -> float:
    """Read a margin such as ``3%``, as a share of time; None is the default.

    Raises:
        ConfigError: ``text`` is no percentage above 0 and below 100.
    """
    if text is None:
        return MARGIN
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 < percent < 100:  # noqa: PLR2004 - per cent
        raise ConfigError(
            f"--fail-if-slower takes a percentage above 0, not {text!r}",
            hint="Write --fail-if-slower 3% for instance.",
        )
    return percent / 100
