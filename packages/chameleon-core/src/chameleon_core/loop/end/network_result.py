"""The network's result, and its rivals: like is held against like, no precisions are mixed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from chameleon_core.dtypes import FLOAT32


@attrs.frozen(kw_only=True)
class NetworkResult:
    """What became of the network that the tasks are parts of. Times are in seconds.

    Attributes:
        latency_seconds: one inference of the compiled network, or None where it was not timed.
        untuned_seconds: one inference as compiled without a tuner, or None.
        rivals: one inference by whatever else runs it here, as its framework has the network.
        rivals_precision: what those of them compute in that do not in float32, by name; known
            where there are ``rivals_reduced``.
        precision: what it computes in, in words.
        precision_summary: why in that; empty where there was nothing to choose.
        front: the types that there were to choose among, a row each, by falling ``seconds`` (of
            the operators as measured alone): ``types``, how many operators are in each,
            ``error`` of the outputs as simulated, and whether that is ``delivered``; where there
            are buckets those of each, with its name under ``bucket``.
        rivals_reduced: whatever else runs it in reduced precision or in the one it takes by
            itself, by name: ``asked``, the precision that was asked of it, ``precision``, what it
            computes in as it says, ``seconds``, and ``max_relative_error`` against float32.
        max_relative_error: of its outputs, or None where nothing was compiled.
        delivered_seconds: wall-clock from the start of the run until the verified network was in
            its folder, before anything was compared with it; None where none was delivered.
        delivery_seconds: wall-clock of each step of that after the operators were compared.
        kernels: where its time goes, the slowest first, each with ``name``, ``tuned``, ``calls``
            in one inference and ``seconds`` of all of them; empty where that is not known.
        unmeasured: operators whose kernel in it was never timed, each with ``name``, ``kernel``
            (``first guess``, ``configuration predicted to be best``, ``another guess`` or
            ``default schedule``) and ``because``.
        left_out: why it was not compared with what else may run it, half a sentence by name.
        footprint: ``memory_bytes`` of its process (``network``) and of its rivals', by name; its
            own has ``first_answer_seconds`` of a new process and ``disk_bytes``, too.
        layout: of the images in it, and its ``summary`` why; empty where the frontend says none.
        buckets: of a network that was compiled for several shapes a row for each, with ``name``,
            ``shapes`` of inputs by name, ``latency_seconds``, ``untuned_seconds``, ``rivals``,
            ``ratio`` and ``max_relative_error`` as here, ``precision`` where there were types to
            choose among, and ``seconds``, wall-clock that compiling and verifying it took. Times
            and kernels of the network are sums then: of one inference in each bucket. Empty where
            there is one shape.
        folder: where the compiled network is, or None where none was delivered.
        failure: why none was delivered, as a sentence, or None.
    """

    latency_seconds: float | None = None
    untuned_seconds: float | None = None
    rivals: Mapping[str, float] = attrs.field(factory=dict)
    rivals_precision: Mapping[str, str] = attrs.field(factory=dict)
    precision: str = FLOAT32
    precision_summary: str = ""
    front: Sequence[Mapping[str, Any]] = ()
    rivals_reduced: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    max_relative_error: float | None = None
    delivered_seconds: float | None = None
    delivery_seconds: Mapping[str, float] = attrs.field(factory=dict)
    kernels: Sequence[Mapping[str, Any]] = ()
    unmeasured: Sequence[Mapping[str, str]] = ()
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    footprint: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    layout: Mapping[str, Any] = attrs.field(factory=dict)
    buckets: Sequence[Mapping[str, Any]] = ()
    folder: str | None = None
    failure: str | None = None

    @property
    def ratio(self) -> float | None:
        """The time of the fastest rival in the same precision over ours: below 1 it is faster."""
        fastest = min(self.like_rivals.values(), default=None)
        return fastest / self.latency_seconds if fastest and self.latency_seconds else None

    @property
    def like_rivals(self) -> Mapping[str, float]:
        """Seconds of the rivals that it is held against; see ``like_rivals``."""
        return like_rivals(self.precision, self.rivals, self.rivals_reduced)

    @property
    def delivered(self) -> bool:
        """Whether a verified network is in its folder."""
        return self.folder is not None and self.failure is None

    def to_json(self) -> dict[str, Any]:
        """What ``run --json`` prints of the network; without the places of what there is not."""
        values = {**attrs.asdict(self), "kernels": [dict(kernel) for kernel in self.kernels]}
        values["unmeasured"] = [dict(one) for one in self.unmeasured]
        values["buckets"] = [dict(one) for one in self.buckets]
        values["front"] = [dict(one) for one in self.front]
        values["ratio"] = self.ratio
        if self.precision == FLOAT32:
            del values["precision"]
        optional = {"folder", "failure", "kernels", "layout", "delivered_seconds"}
        optional |= {"unmeasured", "left_out", "ratio", "buckets", "rivals_reduced"}
        optional |= {
            "rivals_precision",
            "precision_summary",
            "front",
            "delivery_seconds",
            "footprint",
        }
        return {k: v for k, v in values.items() if k not in optional or v}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NetworkResult:
        """The inverse of ``to_json``; what a frontend says beyond it is left out."""
        known = attrs.fields_dict(cls)
        return cls(**{name: one for name, one in value.items() if name in known})


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
    "NetworkResult",
    "RivalRow",
    "alike",
    "fastest_like",
    "like_rivals",
    "rival_rows",
]
