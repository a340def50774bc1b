"""Decides whether output is in colours: as the environment asks, or else on terminals.

``NO_COLOR`` (https://no-color.org) and ``FORCE_COLOR`` (https://force-color.org) count if they are
not empty. If both are set, ``NO_COLOR`` wins. The library rich reads these variables itself.
"""

from __future__ import annotations

import os
from typing import TextIO


def asked_for() -> bool | None:
    """Whether the environment variables ``NO_COLOR`` and ``FORCE_COLOR`` ask for colours.

    False if ``NO_COLOR`` is set, else True if ``FORCE_COLOR`` is set. None if neither is set.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def in_colours(stream: TextIO) -> bool:
    """Whether output to a stream is in colours."""
    asked = asked_for()
    return stream.isatty() if asked is None else asked
