"""Errors of libraries in a few words, and names where not every letter may stand."""

from __future__ import annotations

import re

WAY_OUT = (
    "Write that part of the network with other operators, or tune its operators one by one under "
    "`model: {operators: [...]}`."
)
"""What to do about an operator that cannot be compiled."""


def first_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    text = str(error).strip()
    kind = type(error).__name__
    return f"{kind}: {text.splitlines()[0][:300]}" if text else kind


def identifier(name: str) -> str:
    """A task's name as a part of a file's name or of a symbol: letters, digits and ``_``."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)
