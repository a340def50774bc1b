"""What else runs a network, in which precision: like is held against like, and nothing is mixed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from chameleon_core.dtypes import AS_IT_COMES, FLOAT32

if TYPE_CHECKING:
    from chameleon_core.loop.end.result import NetworkResult


@attrs.frozen(kw_only=True)
class RivalRow:
    """One inference by something else.

    Attributes:
        name: what runs it.
        precision: that it computes in.
        seconds: of one inference.
        max_relative_error: of its outputs against float32; None where it was not measured.
    """

    name: str
    precision: str
    seconds: float
    max_relative_error: float | None = None


def alike(precision: str, asked: str) -> bool:
    """Whether a network is in the precision that is asked of a rival.

    Args:
        precision: of the network, in words, such as ``int8, the rest float32``; what it computes
            in without being asked, after ``the rest``, does not count.
        asked: one precision.
    """
    return asked in re.findall(r"\w+", precision.partition(", the rest")[0])


def like_rivals(
    precision: str, rivals: Mapping[str, float], reduced: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, float]:
    """Seconds of the rivals in the network's own precision; of those in float32 without any.

    Args:
        precision: of the network, in words.
        rivals: seconds of those in float32 by name.
        reduced: of the others, see ``NetworkResult.rivals_reduced``.
    """
    if alike(precision, FLOAT32):
        return rivals
    found = {
        name: one["seconds"] for name, one in reduced.items() if alike(precision, one["asked"])
    }
    return found or rivals


def fastest_like(precision: str, one: Mapping[str, Any]) -> tuple[str, float] | None:
    """Name and seconds of the fastest rival that a network is held against; None without any.

    Args:
        precision: of the network, in words.
        one: of a bucket of shapes, with ``rivals`` and perhaps ``rivals_reduced``.
    """
    found = like_rivals(precision, one["rivals"], one.get("rivals_reduced", {}))
    return min(found.items(), key=lambda pair: pair[1], default=None)


def rival_rows(network: NetworkResult) -> list[RivalRow]:
    """All rivals: those in the network's precision, those as they come, then the others.

    The fastest of each group comes first.
    """
    groups: list[list[RivalRow]] = [[], [], []]
    for name, seconds in network.rivals.items():
        own = network.rivals_precision.get(name, FLOAT32)
        row = RivalRow(name=name, precision=own, seconds=seconds)
        groups[0 if alike(network.precision, own) else 2].append(row)
    for name, one in network.rivals_reduced.items():
        row = RivalRow(
            name=name,
            precision=one["precision"],
            seconds=one["seconds"],
            max_relative_error=one["max_relative_error"],
        )
        like = alike(network.precision, one["asked"])
        groups[0 if like else 1 if one["asked"] == AS_IT_COMES else 2].append(row)
    return [row for group in groups for row in sorted(group, key=lambda row: row.seconds)]


__all__ = [
    "AS_IT_COMES",
    "FLOAT32",
    "RivalRow",
    "alike",
    "fastest_like",
    "like_rivals",
    "rival_rows",
]
