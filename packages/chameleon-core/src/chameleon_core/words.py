"""Small parts of the sentences that errors, results and pages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from chameleon_core.errors import ChameleonError


def did_you_mean(given: Any, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name most alike, or nothing."""
    alike = difflib.get_close_matches(str(given), list(known), n=1)
    return f"; did you mean '{alike[0]}'?" if alike else ""


def listing(names: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def with_article(noun: str) -> str:
    """``a sampler``, ``an explorer``."""
    return f"an {noun}" if noun[:1].lower() in set("aeiou") else f"a {noun}"


def with_hint(error: ChameleonError) -> str:
    """An error and its hint in one line."""
    hint = error.hint or ""
    # The hint's first word goes on in the same sentence, unless it is a name such as TVM.
    if hint[1:2].islower():
        hint = hint[0].lower() + hint[1:]
    return "; ".join(filter(None, [str(error).rstrip("."), hint.rstrip(".")]))


def in_seconds(value: float | None) -> str:
    """Seconds in four digits with a unit that suits them."""
    if value is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:.4g} {unit}"
    return f"{value * 1e6:.4g} µs"
