"""Makes the tasks of a pipeline and their design spaces, with knobs set by the section ``fix``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import attrs

from chameleon_core._errors import ConfigError, TargetError
from chameleon_core._loop.plugin_contract import PluginContract, contract_of
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.schema import FixedKnob, ModelChoice, ResolvedPipeline
from chameleon_core._space.design import DesignSpace
from chameleon_core._space.fixed import fixed_space
from chameleon_core._stages.code import SpaceProvider
from chameleon_core._stages.frontend import Frontend
from chameleon_core._task import Task
from chameleon_core._words import did_you_mean, with_article


def delivers(frontend: Frontend) -> bool:
    """Whether a frontend delivers something at the end of a run, such as a compiled network."""
    return getattr(type(frontend), "deliver", Frontend.deliver) is not Frontend.deliver


def provider_of(pipeline: ModelChoice) -> SpaceProvider:
    """Make the provider of design spaces that the pipeline names.

    Raises:
        PluginError: the provider cannot be made.
    """
    with contract_of(pipeline.space).call("start"):
        provider: SpaceProvider = pipeline.space.create()
    return provider


Pipeline_co = TypeVar("Pipeline_co", bound=ModelChoice, covariant=True)


@attrs.frozen
class TaskSource(Generic[Pipeline_co]):
    """Makes the tasks of a pipeline, and all that tasks need: frontend, target and design spaces.

    Attributes:
        pipeline: the pipeline. The target and its device need a ``ResolvedPipeline``.
    """

    pipeline: Pipeline_co

    @property
    def contract(self) -> PluginContract:
        """The checks of the frontend, for calls of its methods."""
        return contract_of(self.pipeline.model)

    def frontend(self) -> Frontend:
        """Make the pipeline's frontend, and set its precision if the pipeline has one.

        Raises:
            ConfigError: the frontend does not support this precision.
            PluginError: the frontend cannot be made.
        """
        frontend: Frontend = self.pipeline.model.create()
        precision = self.pipeline.sections.get("precision")
        if precision is not None:
            with self.contract.call("take over the precision"):
                frontend.compute_in(precision)
        return frontend

    def target(self: TaskSource[ResolvedPipeline]) -> str:
        """The pipeline's target in canonical form, as the target resolver converts it.

        Without an installed target resolver, the target stays as it is.

        Raises:
            TargetError: the target does not exist.
            PluginError: the target resolver breaks its contract.
        """
        pipeline = self.pipeline
        if pipeline.target_resolver is None:
            return pipeline.target
        with contract_of(pipeline.target_resolver).call(f"resolve the target {pipeline.target!r}"):
            resolved: str = pipeline.target_resolver.create().resolve(pipeline.target)
        return resolved

    def check_runner(self: TaskSource[ResolvedPipeline], target: str) -> None:
        """Raise an error if the runner measures on this machine, and the target is for another one.

        Args:
            target: the resolved target.

        Raises:
            TargetError: no candidate could run.
        """
        resolver, runner = self.pipeline.target_resolver, self.pipeline.runner.name
        if resolver is None:
            return
        with contract_of(resolver).call(f"compare the target {target!r} with this machine"):
            kind = resolver.create().foreign(target)
        if kind:
            raise TargetError(
                f"the runner {runner!r} measures on this machine's CPU, and the target is for "
                f"{with_article(kind)} CPU",
                hint="Measure on such a device, for example with `runner: rpc`; "
                "`chameleon plugins runners` lists all runners.",
            )

    def device(self: TaskSource[ResolvedPipeline], target: str) -> dict[str, Any]:
        """Properties of a target's device, such as its CPU features, as JSON values.

        The mapping is empty if no target resolver is installed.

        Args:
            target: the resolved target.

        Raises:
            PluginError: the target resolver breaks its contract.
        """
        resolver = self.pipeline.target_resolver
        if resolver is None:
            return {}
        contract = contract_of(resolver)
        with contract.call(f"describe the target {target!r}"):
            described = resolver.create().describe(target)
        if not isinstance(described, Mapping):
            raise contract.broken(f"described a target as a {type(described).__name__}")
        return dict(described)

    def tasks(self, target: str, frontend: Frontend | None = None) -> list[Task]:
        """The pipeline's tasks for a resolved target, checked for unique names and keys.

        Args:
            target: the resolved target, as ``TaskSource.target`` gives it.
            frontend: the pipeline's frontend, which is made if it is None.

        Raises:
            ConfigError: the model has no operator, or two tasks have the same operator, arguments
                and target.
            PluginError: the frontend breaks its contract.
        """
        frontend = self.frontend() if frontend is None else frontend
        contract = self.contract
        with contract.call("name the tasks"):
            tasks = list(frontend.tasks(target))
        if not all(isinstance(task, Task) for task in tasks):
            raise contract.broken("returned something else than tasks")
        if not tasks and not delivers(frontend):
            raise ConfigError("the model has no operator to tune", hint="name one under 'model'")
        names: dict[str, str] = {}
        for task in tasks:
            twin = names.setdefault(task.key, task.name)
            if twin != task.name:
                raise ConfigError(
                    f"operators {twin!r} and {task.name!r} are the same work",
                    hint="keep one of them, with a weight",
                )
        if len({task.name for task in tasks}) < len(tasks):
            raise contract.broken("gave two tasks one name")
        return tasks

    def spaces(self, tasks: Sequence[Task], *, among: bool = False) -> list[DesignSpace]:
        """The design space of every task, without the values that the pipeline's ``fix`` excludes.

        Args:
            tasks: tasks of the pipeline.
            among: whether the run has further tasks. If not, a fixed knob that none of these tasks
                has is an error.

        Raises:
            ConfigError: the provider has no space for a task. Or ``fix`` names an operator, knob or
                value that does not exist, or no legal configuration has the fixed values. The
                message names the lines of the pipeline file.
            PluginError: the provider breaks its contract.
        """
        pipeline = self.pipeline
        contract, provider = contract_of(pipeline.space), provider_of(pipeline)
        spaces = []
        for task in tasks:
            with contract.call(f"make the design space of task {task.name!r}"):
                space = provider.design_space(task)
            if not isinstance(space, DesignSpace):
                raise contract.broken(f"returned a {type(space).__name__} instead of a DesignSpace")
            spaces.append(space)
        if not pipeline.fix:
            return spaces
        problems = [] if among else _unknown(pipeline.fix, tasks, spaces)
        pairs = zip(spaces, tasks, strict=True)
        spaces = [_fixed(space, task, pipeline.fix, problems) for space, task in pairs]
        if problems:
            raise PipelineError(problems)
        return spaces


def _fixed(
    space: DesignSpace,
    task: Task,
    knobs: Iterable[FixedKnob],
    problems: list[PipelineError.Problem],
) -> DesignSpace:
    """A task's design space with fixed knobs; values for its operator override those for all."""
    every = {pin.knob: pin for pin in knobs if pin.operator is None and pin.knob in space.index}
    chosen = every | {pin.knob: pin for pin in knobs if pin.operator == task.name}
    columns: dict[int, int] = {}
    for name, knob in chosen.items():
        try:
            columns |= space.columns({name: knob.value})
        except ConfigError as error:
            problems.append(_problem(knob, task, error))
    if len(columns) == len(chosen):
        try:
            return fixed_space(space, columns)
        except ConfigError as error:
            problems += [_problem(knob, task, error) for knob in chosen.values()]
    return space


def _unknown(
    knobs: Iterable[FixedKnob], tasks: Sequence[Task], spaces: Sequence[DesignSpace]
) -> list[PipelineError.Problem]:
    """A problem for each fixed knob whose operator or name no task has."""
    operators = [task.name for task in tasks]
    names = list(dict.fromkeys(name for space in spaces for name in space.index))
    problems = []
    for knob in knobs:
        if knob.operator is not None and knob.operator not in operators:
            said = f"there is no operator '{knob.operator}'{did_you_mean(knob.operator, operators)}"
        elif knob.operator is None and knob.knob not in names:
            guess = did_you_mean(knob.knob, names) or f"; there are {', '.join(names)}"
            said = f"no operator has a knob '{knob.knob}'{guess}"
        else:
            continue
        problems.append(PipelineError.Problem(mark=knob.mark, message=said))
    return problems


def _problem(knob: FixedKnob, task: Task, error: ConfigError) -> PipelineError.Problem:
    return PipelineError.Problem(
        mark=knob.mark, message=f"operator '{task.name}': {error.with_hint()}"
    )
