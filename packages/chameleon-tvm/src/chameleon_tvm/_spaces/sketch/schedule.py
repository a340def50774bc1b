"""Makes the scheduled function of a configuration of a sketch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, InvalidConfigurationError

from chameleon_tvm._quick_tvm import Schedule, Trace, tvm
from chameleon_tvm._spaces.sketch.generator import GeneratedSketches
from chameleon_tvm._spaces.sketch.packing import layout_maps, pack
from chameleon_tvm._spaces.sketch.plan import SKETCH, Decision
from chameleon_tvm._words import TVM_ERRORS, telling_line


@attrs.frozen(kw_only=True, eq=False)
class ScheduledFunction:
    """The scheduled function of a configuration.

    ``layouts`` has the index maps by which constant inputs are packed, by buffer name.
    """

    function: tvm.tirx.PrimFunc
    layouts: dict[str, Any]

    def pack_inputs(self, names: Sequence[str], arrays: Arrays) -> Arrays:
        """The inputs in the layouts that the function reads."""
        return [
            pack(array, self.layouts[name]) if name in self.layouts else array
            for name, array in zip(names, arrays, strict=False)
        ]


def schedule(
    generated: GeneratedSketches, decisions: Sequence[Sequence[Decision]], config: dict[str, Any]
) -> ScheduledFunction:
    """Make the scheduled function of a configuration, from its sketch and its decisions.

    Raises:
        InvalidConfigurationError: A decision is impossible, or a post-processor failed.
    """
    applied, replaced = _apply(generated, decisions, config)
    for decision, used in replaced:
        requested = _to_integers(decision.of(config))
        raise InvalidConfigurationError(
            f"{decision.name} = {requested} is impossible with the other choices, and TVM "
            f"takes {used} instead: choose {used}, or other tiles and locations"
        )
    return finish_schedule(applied)


def replaced_choices(
    generated: GeneratedSketches, decisions: Sequence[Sequence[Decision]], config: dict[str, Any]
) -> dict[str, Any]:
    """The values that TVM uses in place of impossible choices of a configuration, by knob name.

    Raises:
        InvalidConfigurationError: TVM makes no program of the configuration.
    """
    _, replaced = _apply(generated, decisions, config)
    return {decision.name: used for decision, used in replaced}


def _apply(
    generated: GeneratedSketches, decisions: Sequence[Sequence[Decision]], config: dict[str, Any]
) -> tuple[Schedule, list[tuple[Decision, Any]]]:
    """The post-processed schedule, and pairs of a decision that TVM replaced and its value."""
    number = int(config[SKETCH])
    chosen = [(decision, decision.of(config)) for decision in decisions[number]]
    schedule = generated.base.copy()
    trace = Trace(
        generated.sketches[number].trace.insts,
        {decision.sample.instruction: value for decision, value in chosen},
    )
    try:
        trace.apply_to_schedule(schedule, remove_postproc=False)
    except TVM_ERRORS as error:
        raise InvalidConfigurationError(
            f"sketch {number} cannot be scheduled with these decisions: {telling_line(error)}"
        ) from error
    # TVM replaces an impossible decision by another one in silence: read them back.
    values = schedule.trace.decisions.values()
    replaced = [
        (decision, _to_integers(used))
        for (decision, requested), used in zip(chosen, values, strict=True)
        if _to_integers(used) != _to_integers(requested)
    ]
    for postprocessor in generated.postprocessors:
        _post_process(postprocessor, schedule)
    return schedule, replaced


def _to_integers(decision: Any) -> Any:
    try:
        return int(decision)
    except TypeError:
        return [int(value) for value in decision]


def _post_process(postprocessor: Any, schedule: Schedule) -> None:
    name = str(postprocessor).removeprefix("s_tir.meta_schedule.")
    try:
        applied = postprocessor.apply(schedule)
    except TVM_ERRORS as error:
        raise InvalidConfigurationError(f"{name} failed: {telling_line(error)}") from error
    if not applied:
        raise InvalidConfigurationError(f"{name} rejects the schedule")


def finish_schedule(schedule: Schedule) -> ScheduledFunction:
    """The function of a post-processed schedule, without blocks that copy packed constants."""
    strip = tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
    return ScheduledFunction(function=strip(schedule.mod)["main"], layouts=layout_maps(schedule))
