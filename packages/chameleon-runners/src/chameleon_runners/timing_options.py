"""Options of every runner that builds and times kernels; importable without numerical libraries."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators
from chameleon_core.plugins.options import NOT_BINDING

_BEFORE = "before"


def before(option: str) -> dict[str, str]:
    """Metadata of an option that is listed before an inherited one."""
    return {_BEFORE: option}


def in_place(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """List a class's own options where they belong among the inherited ones.

    For ``attrs.frozen(field_transformer=...)``. An option that is defined anew keeps its place. A
    new one stands before the one that it names (``before``), or else after the new one above it.
    """
    known = {field.name: field for field in fields}
    order = [field.name for field in attrs.fields(cls.__bases__[0])]
    place = len(order)
    for name in [name for name in known if name not in order]:
        if _BEFORE in known[name].metadata:
            place = order.index(known[name].metadata[_BEFORE])
        order.insert(place, name)
        place += 1
    return [known[name] for name in order]


@attrs.frozen(kw_only=True)
class TimingOptions:
    """Options that building and timing have in common; every duration is in seconds."""

    workers: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={
            **NOT_BINDING,
            "help": "worker processes that build; one per usable core where not given",
        },
    )
    build_timeout: float = attrs.field(
        default=30.0,
        validator=validators.gt(0.0),
        metadata={**NOT_BINDING, "help": "longest build in seconds, counted from its start"},
    )
    build_floor: float = attrs.field(
        default=10.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "the deadline derived from earlier builds is never below this",
        },
    )
    run_timeout: float = attrs.field(
        default=10.0,
        validator=validators.gt(0.0),
        metadata={**NOT_BINDING, "help": "longest check and timing of one candidate in seconds"},
    )
    run_floor: float = attrs.field(
        default=2.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "the deadline derived from the best time is never below this",
        },
    )
    run_factor: float = attrs.field(
        default=100.0,
        validator=validators.gt(1.0),
        metadata={
            **NOT_BINDING,
            "help": "kernels slower than the best by this factor run into the deadline",
        },
    )
    start_timeout: float = attrs.field(
        default=120.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "longest start of a worker, its imports included, in seconds",
        },
    )
    reference_timeout: float = attrs.field(
        default=300.0,
        validator=validators.gt(0.0),
        metadata={**NOT_BINDING, "help": "longest computation of the reference outputs in seconds"},
    )
    memory_mib: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(64)),
        metadata={
            **NOT_BINDING,
            "help": "memory limit of a worker in MiB; a share of the machine's if absent",
        },
    )
    cold_bytes: int = attrs.field(
        default=0,
        validator=validators.ge(0),
        metadata={
            "help": "bytes touched between runs, so that weights come from memory; 0 for hot caches"
        },
    )
    repeat_seconds: float = attrs.field(
        default=0.0005,
        validator=validators.gt(0.0),
        metadata={"help": "a repeat averages over as many runs as fill this many seconds"},
    )
    turn_seconds: float = attrs.field(
        default=0.006,
        validator=validators.gt(0.0),
        metadata={"help": "repeats of a kernel's turn in the rounds fill this many seconds"},
    )
    min_repeats: int = attrs.field(
        default=6, validator=validators.ge(1), metadata={"help": "repeats at least"}
    )
    max_repeats: int = attrs.field(
        default=24, validator=validators.ge(1), metadata={"help": "repeats at most"}
    )
    spread: float = attrs.field(
        default=0.01,
        validator=validators.gt(0.0),
        metadata={"help": "repeats end once three agree with the fastest this closely"},
    )
    # A busy process on one of two cores makes a kernel appear about twice as slow as it is.
    slow_factor: float = attrs.field(
        default=2.5,
        validator=validators.gt(1.0),
        metadata={"help": "one repeat is enough for kernels slower than the best by this factor"},
    )
    compare_rounds: int = attrs.field(
        default=20,
        validator=validators.ge(1),
        metadata={**NOT_BINDING, "help": "turns of each contender in the final comparison"},
    )


__all__ = ["TimingOptions", "before", "in_place"]
