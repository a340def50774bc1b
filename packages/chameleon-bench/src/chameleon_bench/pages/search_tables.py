"""The tables of one operator's search: the comparison, the ten best, its failures, its winner."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from chameleon_core.loop.end.operator_result import TUNED
from chameleon_core.words import in_seconds

from chameleon_bench.pages.figures import bar
from chameleon_bench.pages.measured import Measured, shown
from chameleon_bench.pages.rendering import Table
from chameleon_bench.pages.run_record import TaskRecord

_TEN = 10
_MANY = 10.0
"""A bar of a comparison this many times as long as the shortest one is cut off."""

_REASONS = 12
"""Reasons that are listed; what is left out is counted."""

_LEAST = 5
"""Measurements of a knob's value below which its share of failures says nothing."""


def comparison(one: TaskRecord) -> Table | None:
    """What the final comparison found; None where there was nothing to compare."""
    timed = [
        (variant.seconds, f"{variant.name} {variant.variant}".strip(), variant.name)
        for variant in one.operator.variants
        if variant.seconds is not None
    ]
    if len(timed) < 2:  # noqa: PLR2004 - nothing to compare
        return None
    timed.sort(key=lambda variant: variant[0])
    ours = one.operator.tuned_seconds
    # Whatever takes many times as long would make all other bars too short to tell apart.
    whole = max(value for value, *_ in timed if value <= _MANY * timed[0][0])
    rows = [
        (
            label,
            in_seconds(value),
            f"{value / ours:.2f}" if ours else "-",
            bar({name: value}, whole, place=0 if name == TUNED else 1),
        )
        for value, label, name in timed
    ]
    return Table(header=("compared, in turns", "median", "times tuned", ""), rows=rows)


def ten_best(measured: Measured) -> Table | None:
    """The fastest measurements as columns, with their knobs; None where nothing has a time."""
    rows = measured.fastest(_TEN).tolist()
    if not rows:
        return None
    best = measured.seconds[rows[0]]
    words = measured.origins.words
    # Knobs on which all agree, and those that never apply, are told apart from the others.
    differing = [
        name for name, knob in measured.knobs.items() if len(set(knob.codes[rows].tolist())) > 1
    ]
    columns = [
        (
            in_seconds(measured.seconds[row]),
            f"{measured.seconds[row] / best:.3f}",
            f"{measured.spread[row]:.1%}",
            str(row + 1),
            words[row],
            *(measured.values_of(row).get(name, "-") for name in differing),
        )
        for row in rows
    ]
    names = ("time", "times best", "spread", "measured as", "origin", *differing)
    # A row for each knob: of these there may be many more than fit beside each other.
    cells = [list(cells) for cells in zip(names, *columns, strict=True)]
    return Table(header=("rank", *map(str, range(1, len(rows) + 1))), rows=cells)


def agreed(measured: Measured) -> dict[str, str]:
    """The knobs that hold one value in all of the ten best."""
    rows = measured.fastest(_TEN).tolist()
    return {
        name: knob.labels[knob.codes[rows[0]]]
        for name, knob in measured.knobs.items()
        if rows and len(rows) > 1 and set(knob.codes[rows].tolist()) == {knob.codes[rows[0]]}
        if knob.codes[rows[0]] >= 0
    }


def winner(one: TaskRecord) -> Table | None:
    """The winner's knobs; None where nothing succeeded."""
    best = one.operator.best
    if best is None:
        return None
    return Table(
        header=("knob", "value"), rows=[(name, shown(value)) for name, value in best.items()]
    )


def reasons(measured: Measured) -> Table | None:
    """Failures by kind and reason, the most frequent first; None where nothing failed."""
    kinds = measured.failures.words
    # Numbers of sizes and processes differ in what is one reason.
    found = Counter(
        (kind, re.sub(r"\d+", "#", message.partition("\n")[0])[:200])
        for kind, message in zip(kinds, measured.messages, strict=True)
        if kind
    )
    if not found:
        return None
    rows = [(kind, why or "-", str(count)) for (kind, why), count in found.most_common(_REASONS)]
    left = sum(found.values()) - sum(count for _, count in found.most_common(_REASONS))
    if left:
        rows.append(("all other reasons", "", str(left)))
    return Table(header=("kind", "reason (# is a number)", "measurements"), rows=rows)


def failing_values(measured: Measured) -> Table | None:
    """The knobs' values that fail more often than the others; None where nothing failed."""
    failed = ~measured.ok
    if not failed.any():
        return None
    overall = float(failed.mean())
    rows = []
    for name, knob in measured.knobs.items():
        counts = np.bincount(knob.codes + 1, minlength=len(knob.labels) + 1)[1:]
        bad = np.bincount(knob.codes + 1, failed, minlength=len(knob.labels) + 1)[1:]
        for label, count, failures in zip(knob.labels, counts, bad, strict=True):
            # How much more often than by chance, in standard deviations of a binomial count.
            excess = failures - overall * count
            deviation = np.sqrt(count * overall * (1.0 - overall))
            if count >= _LEAST and excess > 2.0 * deviation:
                rows.append((excess, name, label, int(failures), int(count)))
    rows.sort(reverse=True)
    if not rows:
        return None
    return Table(
        header=("knob", "value", "failed", "of", "share"),
        rows=[
            (name, label, str(bad), str(count), f"{bad / count:.0%}")
            for _, name, label, bad, count in rows[:_TEN]
        ],
    )


__all__ = ["agreed", "comparison", "failing_values", "reasons", "ten_best", "winner"]
