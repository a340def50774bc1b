"""Tests that any operator and any template must pass, for authors of plugins."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from chameleon_core.plugin_api import Arrays, Builder, Task
from chameleon_testing.conformance import check_space_provider, require_close

from chameleon_tvm._baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace

_SEED = 0


def check_operator(task: Task) -> None:
    """Check an operator: its function against its reference, and that it is deterministic.

    The function, built without a schedule, must compute the same outputs as the reference. An
    operator that is made again from the task's JSON must have the same task key, inputs and
    reference.

    Args:
        task: A task with small shapes, for a target that this machine can run.

    Raises:
        AssertionError: A check fails; the message says which.
    """
    where = f"operator '{task.operator}'"
    again = Task(**json.loads(json.dumps(task.to_json())))
    assert again.key == task.key, f"{where}: its arguments change when they are written as JSON"
    operator, other = operator_of(task), operator_of(again)
    inputs = operator.inputs()
    assert _same(inputs, other.inputs()), f"{where}: its inputs differ from process to process"
    copies = [array.copy() for array in inputs]
    expected = operator.reference(inputs)
    assert _same(inputs, copies), f"{where}: its reference changes its inputs"
    assert _same(expected, other.reference(inputs)), f"{where}: its reference varies"
    places = range(len(inputs))
    assert operator.constants <= set(places), f"{where}: one of its constants is not an input"
    assert operator.flop > 0, f"{where}: it has no floating-point operations"
    _check_outputs(UnscheduledBuilder(task, threads=1), [()], f"{where}, without a schedule")


def check_template(task: Task, options: TemplateOptions | None = None, *, count: int = 8) -> None:
    """Check a task's template: its design space, and the outputs of some configurations.

    Args:
        task: A task with small shapes, for a target that this machine can run.
        options: Options of the space ``template``. They name the template if several fit the task.
        count: Number of configurations to build. First guesses come before random configurations.

    Raises:
        AssertionError: A check fails; the message says which.
        ConfigError: No template fits the task.
    """
    provider = TemplateSpace(options or TemplateOptions())
    check_space_provider(lambda: provider, task)
    space, builder = provider.design_space(task), provider.builder(task, threads=1)
    drawn = space.sample(count, np.random.default_rng(_SEED))
    configs = space.distinct(np.concatenate([space.first_guesses, drawn]))[:count]
    _check_outputs(builder, configs.tolist(), f"template of operator '{task.operator}'")


def _check_outputs(builder: Builder, configs: Sequence[Sequence[int]], where: str) -> None:
    expected, tolerance = builder.reference()
    for config in configs:
        outputs = builder.build(config).outputs()
        about = f"{where}, configuration {list(config)}" if len(config) else where
        require_close(outputs, expected, tolerance, about)


def _same(left: Arrays, right: Arrays) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))
