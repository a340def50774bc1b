"""The part of a long assembly listing that its time is spent in: the innermost loops."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

_LABEL = re.compile(r"^(\.?\$?L[\w$.]*):")
"""A label inside a function, as compilers name it: ``.LBB0_3``, ``$L__BB0_2``."""

_TARGET = re.compile(r"^\s+[a-zA-Z@%][^#]*?([.$]?\$?L[\w$.]*)\s*;?\s*(?:#.*|//.*)?$")
"""An instruction whose last operand is such a label: it jumps there."""

_RETURN = re.compile(r"^\s+ret\w*\b")
"""Code that ends the function; what jumps back to it shares an end and repeats nothing."""


@attrs.frozen(kw_only=True)
class Loop:
    """Lines that end with a jump back to the first of them.

    Attributes:
        first: place of its first line.
        last: place of its last line.
        depth: how many loops it is in, itself included.
    """

    first: int
    last: int
    depth: int = 1


def innermost_loops(lines: Sequence[str]) -> list[Loop]:
    """The loops that have no other one inside, in their order.

    Args:
        lines: assembly of any target whose labels and jumps look as compilers write them.
    """
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for place, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = place
        elif (jump := _TARGET.match(line)) and jump[1] in labels:
            ends[labels[jump[1]]] = place
    returns = [place for place, line in enumerate(lines) if _RETURN.match(line)]
    loops = sorted(
        (first, last)
        for first, last in ends.items()
        if not any(first < place < last for place in returns)
    )
    found = []
    for first, last in loops:
        around = sum(begin <= first and last <= end for begin, end in loops)
        inside = any(first < begin and end <= last for begin, end in loops)
        if not inside:
            found.append(Loop(first=first, last=last, depth=around))
    return found


__all__ = ["Loop", "innermost_loops"]
