"""The numbers that a network may be computed in, and how far its answers may be off for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.dtypes import FLOAT32
from chameleon_core.pipeline.nodes import Node, Problem
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins.options import BINDS, option
from chameleon_core.plugins.records import Section
from chameleon_core.words import did_you_mean, listing


@attrs.frozen(kw_only=True)
class Precision(Section):
    """The section ``precision`` of a pipeline.

    Names of types are the frontend's (``PluginRecord.precisions``). Float32 is always a candidate:
    for each operator that is slower in another type, and for the whole network.

    Attributes:
        type: the only other type, or float32 for none.
        search: the types that are searched, each operator's by itself; needs a bound.
        max_error: largest |difference| to the network in float32 over the largest |output|, or
            None for any.
        calibrate: a function of the user's that gives batches of inputs, from which ranges are
            read; None for the frontend's own samples.
        metric: a function of the user's that takes a network and returns a number that is better
            the larger it is, or None.
        max_drop: how much smaller the metric may be than in float32; needed with ``metric``.
    """

    type: str | None = option(
        None, "the only type beside float32, if that is faster", precisions=True
    )
    search: tuple[str, ...] = option(
        (), "types that are searched, each operator's by itself", precisions=True
    )
    max_error: float | None = option(
        None,
        "largest difference to the outputs in float32 over the largest output",
        above=0.0,
        binds=False,
    )
    calibrate: str | None = option(
        None, "'file.py:function' that gives batches of inputs to read ranges from", source=True
    )
    metric: str | None = option(
        None,
        "'file.py:function' that takes a network and returns a number, larger is better",
        binds=False,
        source=True,
    )
    max_drop: float | None = option(
        None, "how much smaller the metric may be than in float32", at_least=0.0, binds=False
    )

    def __attrs_post_init__(self) -> None:
        if self.type is not None and self.search:
            raise ValueError("'type' and 'search' exclude each other; keep one of them")
        if len(set(self.search)) < len(self.search):
            raise ValueError("a type is in 'search' twice; remove one")
        if (self.metric is None) != (self.max_drop is None):
            raise ValueError("'metric' and 'max_drop' belong together")
        if self.search and not self.bounded:
            raise ValueError("'search' needs a bound; name 'max_error', or 'metric' and 'max_drop'")
        said = (self.max_error, self.calibrate, self.metric)
        if self.type is None and not self.search and any(value is not None for value in said):
            raise ValueError("names no type; add 'type' or 'search'")

    @property
    def types(self) -> tuple[str, ...]:
        """The types beside float32 that operators may be computed in; none for float32 alone."""
        named = self.search if self.type is None else (self.type,)
        return tuple(name for name in named if name != FLOAT32)

    @property
    def bounded(self) -> bool:
        """Whether something is said of the error."""
        return self.max_error is not None or self.metric is not None

    @classmethod
    def binding(cls, section: Any) -> Mapping[str, Any]:
        precision = cls.from_json(section)
        if not precision.types:
            return {}
        values = {
            field.alias: getattr(precision, field.name)
            for field in attrs.fields(cls)
            if field.metadata.get(BINDS, True) and field.name not in ("type", "search")
        }
        return {"types": sorted(precision.types), **values}

    def problems(self, node: Node, model: StageSpec) -> Iterator[Problem]:
        return unknown_types(node, (FLOAT32, *model.record.precisions), model.name)

    def to_json(self) -> Mapping[str, Any] | None:
        """The section as a pipeline file has it, or None for float32 alone."""
        if not self.types:
            return None
        written = {name: value for name, value in attrs.asdict(self).items() if value is not None}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in written.items()
            if value != ()
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Precision:
        """The inverse of ``to_json``."""
        return cls(**{**value, "search": tuple(value.get("search", ()))}) if value else cls()


def unknown_types(node: Node, known: Sequence[str], frontend: str) -> Iterator[Problem]:
    """Problems with the names of types that were written.

    Args:
        node: the section as it was written.
        known: the types that the frontend has, float32 among them.
        frontend: its name.
    """
    types = node.get("search")
    alone = node.get("type")
    written = (*(types.value if types is not None else ()), *([alone] if alone is not None else []))
    for entry in written:
        if entry.value is None or entry.value in known:
            continue
        if not set(known) - {FLOAT32}:
            message = (
                f"frontend '{frontend}' computes in {FLOAT32} alone; leave 'precision' out, or "
                "choose a frontend of networks"
            )
        else:
            guess = did_you_mean(entry.value, known) or f"; there is {listing(list(known))}"
            message = f"unknown precision '{entry.value}' for frontend '{frontend}'{guess}"
        yield Problem(mark=entry.mark, message=message)
