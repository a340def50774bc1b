"""Whether what is printed is in colours: what the environment asks for, else what the stream is.

``NO_COLOR`` (https://no-color.org) and ``FORCE_COLOR`` (https://force-color.org) count if they
are not empty; the first wins. Rich reads them itself.
"""

from __future__ import annotations

import os
from typing import TextIO


def asked_for() -> bool | None:
    """The colours that the environment asks for, or None if it says nothing."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def in_colours(stream: TextIO) -> bool:
    """Whether to write to a stream in colours."""
    asked = asked_for()
    return stream.isatty() if asked is None else asked
