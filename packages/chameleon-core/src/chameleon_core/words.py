"""Small parts of the sentences that errors are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def did_you_mean(given: Any, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name most alike, or nothing."""
    alike = difflib.get_close_matches(str(given), list(known), n=1)
    return f"; did you mean '{alike[0]}'?" if alike else ""


def listing(names: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
