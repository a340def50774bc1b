"""Conversions between Chameleon's configurations, MetaSchedule's traces and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Choice

from chameleon_tvm._quick_tvm import Schedule, Trace
from chameleon_tvm._spaces.sketch.plan import Decision, ThinnedFactorization
from chameleon_tvm._spaces.sketch.provider import SketchPlan
from chameleon_tvm._spaces.sketch.schedule import schedule

_POSTPROCESSING = "EnterPostproc"


def applied(plan: SketchPlan, config: Sequence[int]) -> Schedule:
    """The schedule of a configuration, with the trace that MetaSchedule records.

    Args:
        plan: The task's sketches.
        config: The configuration's knob indices.

    Raises:
        InvalidConfigurationError: The configuration has no program.
    """
    generated, base = plan.generated, _UncopiedBase(plan.generated.base)
    postprocessors = (_EnterPostprocessing(), *generated.postprocessors)
    schedule(
        attrs.evolve(generated, base=base, postprocessors=postprocessors),
        plan.decisions,
        plan.bare_space.decode(config),
    )
    return base.schedule


class _UncopiedBase:
    """A base schedule with an empty trace, whose method ``copy`` returns itself."""

    def __init__(self, base: Schedule) -> None:
        self.schedule = Schedule(base.mod)

    def copy(self) -> Schedule:
        return self.schedule


class _EnterPostprocessing:
    """Marks the start of post-processing in a trace; MetaSchedule drops what follows the mark."""

    def apply(self, schedule: Schedule) -> bool:
        schedule.enter_postproc()
        return True


def config_of(plan: SketchPlan, trace: Trace) -> tuple[int, ...] | None:
    """The configuration that a trace belongs to; None if no sketch of the plan has this trace."""
    instructions, decisions = _before_postprocessing(trace)
    for number, sketch in enumerate(plan.generated.sketches):
        if _before_postprocessing(sketch.trace)[0] == instructions:
            return _configuration(plan, number, decisions)
    return None


def _before_postprocessing(trace: Trace) -> tuple[list[Any], list[Any]]:
    """The instructions and decisions of a trace that come before post-processing."""
    instructions, decisions = trace_json(trace)
    kinds = [instruction[0] for instruction in instructions]
    end = kinds.index(_POSTPROCESSING) if _POSTPROCESSING in kinds else len(kinds)
    return instructions[:end], [value for number, value in sorted(decisions) if number < end]


def _configuration(plan: SketchPlan, number: int, values: Sequence[Any]) -> tuple[int, ...] | None:
    indices = dict.fromkeys(plan.bare_space.index, 0)
    indices[plan.bare_space.knobs[0].name] = number
    for decision, value in zip(plan.decisions[number], values, strict=True):
        if decision.knob is None:
            continue
        try:
            indices[decision.knob] = _index(plan, decision, value)
        except (KeyError, ValueError, IndexError):  # a choice that the space leaves out
            return None
    return tuple(indices.values())


def _index(plan: SketchPlan, decision: Decision, value: Any) -> int:
    assert decision.knob is not None  # noqa: S101 - narrows the type; the caller checked
    knob = plan.bare_space.knobs[plan.bare_space.index[decision.knob]]
    if isinstance(knob, ThinnedFactorization):
        return knob.index_of(tuple(int(factor) for factor in value))
    if decision.sample.kind == "SampleCategorical":
        return int(value)  # options are in the order of the candidates
    assert isinstance(knob, Choice)  # noqa: S101 - compute locations are choices
    return knob.options.index(int(value))


def trace_json(trace: Trace) -> Any:
    """Convert a trace of MetaSchedule to JSON values, as its databases store it."""
    return _to_json(trace.as_json())


def _to_json(value: Any) -> Any:
    if isinstance(value, str | bytes):
        return str(value)
    if isinstance(value, int | float | bool) or value is None:
        return value
    if hasattr(value, "items"):
        return {str(key): _to_json(entry) for key, entry in value.items()}
    if hasattr(value, "__iter__"):
        return [_to_json(entry) for entry in value]
    return int(value) if "Int" in type(value).__name__ else float(value)
