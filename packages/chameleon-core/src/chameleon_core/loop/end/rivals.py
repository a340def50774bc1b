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
        like: whether that is the network's own precision, so that like is held against like.
    """

    name: str
    precision: str
    seconds: float
    max_relative_error: float | None = None
    like: bool = True


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


def fastest_like(bucket: Mapping[str, Any]) -> tuple[str, float] | None:
    """Name and seconds of the fastest rival that a bucket is held against; None without any.

    Args:
        bucket: with ``rivals``, and perhaps ``precision`` in words and ``rivals_reduced``.
    """
    precision = bucket.get("precision", FLOAT32)
    found = like_rivals(precision, bucket["rivals"], bucket.get("rivals_reduced", {}))
    return min(found.items(), key=lambda pair: pair[1], default=None)


def rival_rows(network: NetworkResult) -> list[RivalRow]:
    """All rivals: those in the network's precision, those in float32, then the reduced ones.

    The fastest of each group comes first; none that computes less exactly comes before one that
    does not, whatever their seconds.
    """
    rows = []
    for name, seconds in network.rivals.items():
        own = network.rivals_precision.get(name, FLOAT32)
        like = alike(network.precision, own)
        rows.append(RivalRow(name=name, precision=own, seconds=seconds, like=like))
    for name, one in network.rivals_reduced.items():
        rows.append(
            RivalRow(
                name=name,
                precision=one["precision"],
                seconds=one["seconds"],
                max_relative_error=one["max_relative_error"],
                like=alike(network.precision, one["asked"]),
            )
        )
    return sorted(rows, key=lambda row: (not row.like, row.precision != FLOAT32, row.seconds))


__all__ = [
    "AS_IT_COMES",
    "FLOAT32",
    "RivalRow",
    "alike",
    "fastest_like",
    "like_rivals",
    "rival_rows",
]
