"""The section ``precision`` of a pipeline: dtypes to compute in, and the largest accepted error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.api import words
from chameleon_core.plugin_api import FLOAT32, Node, PipelineError, Section, StageSpec, option


@attrs.frozen(kw_only=True)
class Precision(Section):
    """The section ``precision`` of a pipeline file.

    The frontend lists the names of dtypes (``FrontendRecord.precisions``). An operator that is
    slower in another dtype stays in float32. The whole network stays in float32 if no choice of
    dtypes is faster.

    Attributes:
        type: The only dtype other than float32 that operators may have. With None or ``float32``,
            all operators stay in float32.
        search: The dtypes to search, for each operator separately. A search needs a bound:
            ``max_error``, or ``metric`` with ``max_drop``.
        max_error: The largest |difference| from the network in float32 over the largest |output|.
            None accepts any error.
        calibrate: A user's function that yields batches of inputs, from which ranges are computed.
            None uses the frontend's random inputs.
        metric: A user's function that gets a network and returns a number; a larger number is
            better. None if the section names no such function.
        max_drop: How much smaller than in float32 the metric may be. Needed with ``metric``.
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
        bounds = (self.max_error, self.calibrate, self.metric)
        if self.type is None and not self.search and any(value is not None for value in bounds):
            raise ValueError("names no type; add 'type' or 'search'")

    @property
    def types(self) -> tuple[str, ...]:
        """The dtypes other than float32 that operators may have; empty if there are none."""
        named = self.search if self.type is None else (self.type,)
        return tuple(name for name in named if name != FLOAT32)

    @property
    def bounded(self) -> bool:
        """Whether the section bounds the error, by ``max_error`` or by ``metric``."""
        return self.max_error is not None or self.metric is not None

    @classmethod
    def binding(cls, section: Any) -> Mapping[str, Any]:
        precision = cls.from_json(section)
        if not precision.types:
            return {}
        values = {
            field.alias: getattr(precision, field.name)
            for field in attrs.fields(cls)
            if field.metadata.get("binds", True) and field.name not in ("type", "search")
        }
        return {"types": sorted(precision.types), **values}

    def problems(self, node: Node, model: StageSpec) -> Iterator[PipelineError.Problem]:
        return unknown_types(node, (FLOAT32, *model.record.precisions), model.name)

    def to_json(self) -> Mapping[str, Any] | None:
        """The section as values of a pipeline file, or None if float32 is the only dtype."""
        if not self.types:
            return None
        return attrs.asdict(self, filter=lambda _, value: value not in (None, ()))

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Precision:
        """Make a section from the result of ``to_json``."""
        return cls(**{**value, "search": tuple(value.get("search", ()))}) if value else cls()


def unknown_types(
    node: Node, known: Sequence[str], frontend: str
) -> Iterator[PipelineError.Problem]:
    """Yield a problem for each dtype in a pipeline file that the frontend does not have."""
    types = node.get("search")
    type_entry = node.get("type")
    entries = (
        *(types.value if types is not None else ()),
        *([type_entry] if type_entry is not None else []),
    )
    for entry in entries:
        if entry.value is None or entry.value in known:
            continue
        if not set(known) - {FLOAT32}:
            message = (
                f"frontend '{frontend}' computes in {FLOAT32} alone; leave 'precision' out, or "
                "choose a frontend of networks"
            )
        else:
            guess = (
                words.did_you_mean(entry.value, known) or f"; there is {words.listing(list(known))}"
            )
            message = f"unknown precision '{entry.value}' for frontend '{frontend}'{guess}"
        yield PipelineError.Problem(mark=entry.mark, message=message)
