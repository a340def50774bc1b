"""Small parts of the sentences that errors, results and pages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from chameleon_core.errors import ChameleonError


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the known name most alike, or nothing."""
    alike = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean '{alike[0]}'?" if alike else ""


def listing(names: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def counted(count: int, noun: str) -> str:
    """``1 task``, ``2 tasks``; for nouns whose plural is an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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


_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_MANY = 1e3
_LARGE = 100.0


def in_seconds(value: float | None, form: str = ".4g") -> str:
    """Seconds with a unit that suits them, as in ``1.25 ms``.

    Args:
        value: None if it is not known.
        form: how the number is written, as ``format`` has it.
    """
    if value is None:
        return "-"
    rounded = float(format(value, form))
    unit, scale = next((unit for unit in _UNITS if rounded >= unit[1]), _UNITS[-1])
    # Many seconds would be written with an exponent.
    return f"{format(rounded / scale, form if rounded < _MANY else '.0f').rstrip('.')} {unit}"


def in_ratio(value: float) -> str:
    """A ratio of times, with decimals if it is small, as in ``2.75`` and ``1050``."""
    return f"{value:.2f}" if value < _LARGE else f"{value:.0f}"
