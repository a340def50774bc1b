"""Spaces of tasks with the knobs that the pipeline fixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chameleon_core.errors import ConfigError
from chameleon_core.pipeline.fix import FixedKnob
from chameleon_core.pipeline.nodes import Collecting, PipelineError, Problem
from chameleon_core.space import DesignSpace
from chameleon_core.space.chosen import index_of, knob_of
from chameleon_core.space.fixed import fixed_space
from chameleon_core.task import Task
from chameleon_core.words import did_you_mean, with_hint


def fixed_spaces(
    spaces: Sequence[DesignSpace],
    tasks: Sequence[Task],
    knobs: Sequence[FixedKnob],
    *,
    among: bool = False,
) -> list[DesignSpace]:
    """The parts of spaces in which the knobs that a pipeline fixes hold their values.

    What is said of an operator by name goes before what is said of every one that has the knob.

    Args:
        spaces: one per task.
        tasks: the tasks.
        knobs: what is fixed.
        among: whether there are other tasks; else what none of these has is a mistake.

    Raises:
        PipelineError: there is no such operator, knob or value, or nothing legal has these values;
            says where each was written.
    """
    problems: list[Problem] = [] if among else _unknown(knobs, tasks, spaces)
    parts = []
    for space, task in zip(spaces, tasks, strict=True):
        with Collecting(problems):
            parts.append(_fixed(space, task, knobs))
    if problems:
        raise PipelineError(problems)
    return parts


def _fixed(space: DesignSpace, task: Task, knobs: Iterable[FixedKnob]) -> DesignSpace:
    every = {one.knob: one for one in knobs if one.operator is None and one.knob in space.index}
    chosen = every | {one.knob: one for one in knobs if one.operator == task.name}
    columns, problems = {}, []
    for name, one in chosen.items():
        try:
            columns[space.index[knob_of(space, name).name]] = index_of(
                knob_of(space, name), one.value
            )
        except ConfigError as error:
            problems.append(_problem(one, task, error))
    if problems:
        raise PipelineError(problems)
    try:
        return fixed_space(space, columns)
    except ConfigError as error:
        raise PipelineError([_problem(one, task, error) for one in chosen.values()]) from error


def _unknown(
    knobs: Iterable[FixedKnob], tasks: Sequence[Task], spaces: Sequence[DesignSpace]
) -> list[Problem]:
    """What is fixed and nowhere there."""
    operators = [task.name for task in tasks]
    names = list(dict.fromkeys(name for space in spaces for name in space.index))
    problems = []
    for one in knobs:
        if one.operator is not None and one.operator not in operators:
            said = f"there is no operator '{one.operator}'{did_you_mean(one.operator, operators)}"
        elif one.operator is None and one.knob not in names:
            guess = did_you_mean(one.knob, names) or f"; there are {', '.join(names)}"
            said = f"no operator has a knob '{one.knob}'{guess}"
        else:
            continue
        problems.append(Problem(mark=one.mark, message=said))
    return problems


def _problem(one: FixedKnob, task: Task, error: ConfigError) -> Problem:
    return Problem(mark=one.mark, message=f"operator '{task.name}': {with_hint(error)}")


__all__ = ["fixed_spaces"]
