"""Durations as people write them: ``20m``, ``90s``, ``1h30m``; a plain number is seconds."""

from __future__ import annotations

import re

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)\s*")

DURATION = rf"^\s*(?:{_PART.pattern})+$"
"""What a duration looks like, but for the order of its units."""


def parse_duration(text: str) -> float:
    """Seconds in a text such as ``1h30m``.

    Raises:
        ValueError: it is no duration, or its units do not go from large to small.
    """
    rest = text.strip()
    total = 0.0
    last = float("inf")
    if not rest:
        raise ValueError("an empty text is no duration")
    while rest:
        part = _PART.match(rest)
        if part is None or _UNITS[part[2]] >= last:
            raise ValueError(f"{text!r} is no duration; write it like 90s, 20m or 1h30m")
        last = _UNITS[part[2]]
        total += float(part[1]) * last
        rest = rest[part.end() :]
    return total
