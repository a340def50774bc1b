"""A pipeline after reading: its stages are chosen, and its options are checked."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import attrs

from chameleon_core._errors import ConfigError, PluginError
from chameleon_core._pipeline.nodes import Mark, Node, PipelineError
from chameleon_core._plugins.kinds import STAGE_KINDS
from chameleon_core._plugins.options import option, sources_in
from chameleon_core._plugins.registry import Registry
from chameleon_core._task import Task


@attrs.frozen(kw_only=True)
class FixedKnob:
    """A knob whose value the pipeline fixes (section ``fix``).

    Attributes:
        knob: the name of the knob.
        value: the value of the knob, as a JSON value.
        operator: the name of the operator for which the value is fixed; None for every operator
            with this knob.
        mark: the place of the entry in the pipeline file, for error messages.
    """

    knob: str
    value: Any
    operator: str | None = None
    mark: Mark = attrs.field(eq=False)


def fixed_knobs(node: Node | None, problems: list[PipelineError.Problem]) -> tuple[FixedKnob, ...]:
    """Read the knobs that a pipeline fixes.

    This function does not check that operators have these knobs, because the operators' design
    spaces are made later.

    Args:
        node: the section ``fix``. It maps knobs to values, and names of operators to mappings from
            knobs to values. None if the pipeline has no such section.
        problems: the list to which faults of the section are added.
    """
    if node is None or node.value is None:
        return ()
    if not node.is_mapping:
        wrong = f"'fix' must be a mapping of knobs to values, not {node.in_words()}"
        problems.append(PipelineError.Problem(mark=node.mark, message=wrong))
        return ()
    knobs = [*_knobs(node, None)]
    for knob in knobs:
        if knob.value is None or isinstance(knob.value, dict):
            wrong = f"knob '{knob.knob}' is fixed to no value; write one of its values"
            problems.append(PipelineError.Problem(mark=knob.mark, message=wrong))
    return tuple(knobs)


def _knobs(node: Node, operator: str | None) -> Iterator[FixedKnob]:
    for name, item in node.items():
        if item.node.is_mapping and operator is None:
            yield from _knobs(item.node, name)
        else:
            yield FixedKnob(
                knob=name, value=item.node.plain(), operator=operator, mark=item.node.mark
            )


class Scope(StrEnum):
    """Whether a budget holds for each task, or for the whole network."""

    TASK = "task"
    NETWORK = "network"


AtOnce = int | Literal["auto"]
"""A number from 1; ``auto`` lets Chameleon choose a number that suits the runner."""


def _auto_or_positive(_: object, attribute: attrs.Attribute[Any], value: AtOnce) -> None:
    if value != "auto" and value < 1:
        raise ValueError(f"'{attribute.name}' must be 'auto' or at least 1, not {value!r}")


def _finite(_: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if value == math.inf:
        raise ValueError(f"'{attribute.name}' must be finite; null means no limit")


SameFailure = int | Literal["auto"]
"""A number of measurements from 1; ``auto`` is enough to rule out chance."""


LIMITS = ("measurements", "wall_time")
"""The limits of a budget. If a pipeline sets one of them, the default of the other does not
hold."""

_MEASUREMENTS = 256


@attrs.frozen(kw_only=True)
class Budget:
    """The limits of a run. The first limit that is reached ends the run.

    Attributes:
        wall_time: wall-clock time in seconds, or None for no limit.
        measurements: the largest number of measurements, or None for no limit. The default is 256,
            or None if ``wall_time`` is set. With 0, each task gets the best configuration that a
            trained cost model predicts, or else the first guess of its space.
        unpredicted: the value of ``measurements`` for tasks that the trained cost model does not
            know. None means the same value as for other tasks.
        batch_size: the number of configurations measured per round, or None for the runner's
            choice.
        plan_size: the number of candidates that the explorer proposes per round, and from which the
            sampler selects a batch. None means eight batches.
        tasks_at_once: the number of tasks that may have a batch in flight at the same time.
            ``auto`` keeps the runner's devices busy; it is one task if a search would disturb the
            timing.
        patience: a task ends after this many measurements in a row without an improvement of more
            than 1 %, because timing varies by less. None means that no task ends for this reason.
        latency: the run ends once the sum of the tasks' best times, each times the task's weight,
            is at most this many seconds. None means no such target.
        same_failure: a task ends after this many measurements of the task if all of them failed
            alike. All tasks end after this many measurements of the run if all of these failed
            alike. ``auto`` is two batches, but at least 16, or half as many if memory ran out. None
            means that no task ends for these reasons. The option has no effect on searches in
            recorded tables.
        scope: whether ``measurements`` and ``wall_time`` hold for each task or for all tasks
            together.
    """

    wall_time: float | None = option(
        None,
        "largest wall-clock time, such as 20m; null for no limit",
        _finite,
        above=0.0,
        duration=True,
    )
    measurements: int | None = attrs.field(
        default=attrs.Factory(
            lambda self: _MEASUREMENTS if self.wall_time is None else None, takes_self=True
        ),
        validator=attrs.validators.optional(attrs.validators.ge(0)),
        metadata={"help": "largest number of measured configurations; null for no limit"},
    )
    unpredicted: int | None = option(
        None,
        "the limit 'measurements' for tasks that the trained cost model does not know; by default "
        "the same as for other tasks",
        at_least=0,
    )
    batch_size: int | None = option(
        None, "configurations measured per round; the runner chooses by default", at_least=1
    )
    plan_size: int | None = option(
        None, "candidates that the explorer proposes per round; 8 batches by default", at_least=1
    )
    tasks_at_once: AtOnce = option(
        "auto", "tasks that are measured at the same time, or auto", _auto_or_positive
    )
    patience: int | None = option(
        None, "a task ends after this many measurements without a gain of 1 %", at_least=1
    )
    latency: float | None = option(
        None,
        "the run ends when the operators together take at most this time, such as 9ms",
        _finite,
        above=0.0,
        duration=True,
    )
    same_failure: SameFailure | None = option(
        "auto",
        "a task or run ends after this many measurements if all failed alike; auto or null",
        attrs.validators.optional(_auto_or_positive),
    )
    scope: Scope = option(Scope.TASK, "whether limits are per task or for all: task or network")

    def __attrs_post_init__(self) -> None:
        if self.measurements is None and self.wall_time is None and self.patience is None:
            raise ValueError(
                "a budget without an end; name 'measurements', 'wall_time' or 'patience'"
            )
        if self.unpredicted is not None and self.scope is Scope.NETWORK:
            raise ValueError(
                "'unpredicted' holds for each task, and 'scope' is network; make 'unpredicted' null"
            )


@attrs.frozen(kw_only=True)
class Requirement:
    """A result that a run must reach. If the run misses it, the command exits with code 5.

    Attributes:
        network_ratio: the smallest accepted ratio of the fastest rival's time to the delivered
            network's time. None means no such requirement.
        min_ratio: the smallest accepted ratio of the baseline's time to the tuned kernel's time,
            for every operator. None means no such requirement.
        against: the name of the baseline for ``min_ratio``; None without ``min_ratio``.
        verified: whether another implementation must have computed the outputs that the delivered
            network's outputs were compared with.
    """

    network_ratio: float | None = option(
        None, "smallest accepted speed of the network relative to the fastest rival's", above=0.0
    )
    min_ratio: float | None = option(
        None, "smallest accepted speed of every operator relative to the baseline's", above=0.0
    )
    against: str | None = option(None, "name of the baseline for min_ratio")
    verified: bool = option(
        False, "whether another implementation must have verified the network's outputs"
    )

    def __attrs_post_init__(self) -> None:
        if (self.min_ratio is None) != (self.against is None):
            raise ValueError("'min_ratio' and 'against' belong together")
        if self.min_ratio is None and self.network_ratio is None and not self.verified:
            raise ValueError(
                "asks for nothing; name 'verified', 'network_ratio', or 'min_ratio' and 'against'"
            )


@attrs.frozen(kw_only=True)
class StageSpec:
    """A stage that a pipeline names, with its checked options.

    Attributes:
        kind: the kind of the stage, a key of ``chameleon_core._plugins.kinds.KINDS``, such as
            ``explorers``.
        name: the plugin's name in the pipeline. It is ``distribution:name`` if several
            distributions have a plugin of this name.
        record: the plugin's record, of the class that its kind has (``Kind.record``).
        options: an instance of ``record.options``.
        options_json: ``options`` as JSON values, defaults included.
        distribution: the distribution that registers the plugin; empty if unknown.
        by_default: whether the pipeline does not name this stage, and only a default value of
            another stage's option does.
    """

    kind: str
    name: str
    record: Any
    options: Any
    options_json: dict[str, Any] = attrs.field(factory=dict)
    distribution: str = ""
    by_default: bool = False

    def to_json(self) -> dict[str, Any] | str:
        """The stage as in a pipeline file: a mapping, or only its name if ``by_default``."""
        return self.name if self.by_default else {"name": self.name, **self.options_json}

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the user's code in the options, such as ``nets.py:build``."""
        return tuple(sources_in(self.options))

    @property
    def factory(self) -> str:
        """The class of the stage as ``"module:Class"``, for stages that workers make."""
        factory = self.record.factory
        if isinstance(factory, str):
            return factory
        raise PluginError(
            f"{STAGE_KINDS[self.kind].noun} '{self.name}' exists only in this process",
            hint="register the class as a plugin, so that worker processes can import it",
        )

    def create(self, context: Any = None) -> Any:
        """Import the class of the stage, and make the stage.

        Args:
            context: the second argument of the class, such as a ``StageContext``. It is used only
                for kinds of stages that take a context.

        Raises:
            PluginError: the class cannot be imported, or the stage cannot be made.
        """
        return STAGE_KINDS[self.kind].make_stage(self.record, self.options, context)


def stages_of(value: Any) -> Iterator[StageSpec]:
    """Find all stages in a pipeline or in options, also stages that are options of others."""
    if isinstance(value, StageSpec):
        yield value
        yield from stages_of(value.options)
    elif isinstance(value, tuple | list | Mapping):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from stages_of(inner)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from stages_of(getattr(value, field.name, None))


@attrs.frozen(kw_only=True)
class ModelChoice:
    """The parts of a pipeline that are needed to interpret a run's measurements.

    The search stages and the runner are not needed, so measurements can be read without these
    plugins.

    Attributes:
        model: the frontend, with the model as its options.
        space: the provider of design spaces.
        sections: the pipeline's sections that come from plugins, by name.
        fix: the knobs whose values the pipeline fixes.
    """

    model: StageSpec
    space: StageSpec
    sections: Mapping[str, Any] = attrs.field(factory=dict)
    fix: tuple[FixedKnob, ...] = ()


# This class has no slots, because a pipeline also derives from ``ModelChoice``, and only one base
# class may have slots.
@attrs.frozen(kw_only=True, slots=False)
class SearchChoice:
    """The search stages that a pipeline names, with their budget and seed.

    Attributes:
        explorer: the explorer.
        cost_model: the cost model.
        sampler: the sampler.
        synthesizer: the synthesizer.
        budget: the limits of the search.
        seed: the run's seed.
    """

    explorer: StageSpec
    cost_model: StageSpec
    sampler: StageSpec
    synthesizer: StageSpec
    budget: Budget = attrs.field(factory=Budget)
    seed: int = 0


@attrs.frozen(kw_only=True)
class ResolvedPipeline(ModelChoice, SearchChoice):
    """A pipeline that is ready to run: its preset is expanded, and all options are checked.

    Attributes:
        target: the value of ``target`` in the pipeline. A mapping is given as a JSON string.
        target_resolver: the stage that converts the target to its canonical form, or None if no
            such plugin is installed.
        runner: the runner, which measures configurations.
        scheduler: the scheduler, which chooses the task of each batch.
        warm_start: folders of earlier runs, whose best configurations are measured first.
        records: the record databases. The first writable one gets the new measurements. Empty for
            no database; None if the pipeline has no key ``records``.
        baselines: the baselines, in the order of the pipeline.
        registry: the plugins of the run.
        require: the result that the run must reach, or None.
        output: the run folder as an absolute path.
        preset: the name of the preset that was expanded, or None.
        source: the absolute path of the pipeline file, or None if the pipeline has no file.
        root: the expanded pipeline with the place of each value in the user's files.
        document: the expanded pipeline as JSON values. The same pipeline can be loaded from it.
    """

    target: str
    target_resolver: StageSpec | None = None
    runner: StageSpec
    scheduler: StageSpec
    warm_start: tuple[Path, ...] = ()
    records: tuple[StageSpec, ...] | None = None
    baselines: tuple[StageSpec, ...] = ()
    registry: Registry = attrs.field(eq=False, repr=False)
    require: Requirement | None = None
    output: Path
    preset: str | None = None
    source: Path | None = None
    root: Node = attrs.field(eq=False, repr=False)
    document: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    def stages(self, key: str | None = None) -> Iterator[StageSpec]:
        """The pipeline's stages, with those that are options of other stages.

        Args:
            key: a key of the pipeline, to which the stages belong; None for all keys.
        """
        return stages_of(self if key is None else getattr(self, key))

    @property
    def origin(self) -> str:
        """A sentence with the file and the preset from which the pipeline was made."""
        origin = f"Expanded from {self.source.name}" if self.source else "Expanded"
        preset = "" if self.preset is None else f" with preset '{self.preset}'"
        return f"{origin}{preset}; every default is written out."

    def check_runner(self, tasks: Iterable[Task]) -> None:
        """Raise an error if the runner cannot measure a task.

        Raises:
            ConfigError: the runner measures only other kinds of operators.
        """
        runner = self.runner
        known = runner.record.operators
        for task in tasks:
            if known and task.operator not in known:
                raise ConfigError(
                    f"runner '{runner.name}' cannot measure task {task.name!r}, a "
                    f"{task.operator!r}",
                    hint=f"it measures only: {', '.join(known)}; leave 'runner' out for the "
                    "default",
                )

    @property
    def digest(self) -> str:
        """A digest of the pipeline without output, budget, requirements and record databases.

        If a finished run has the same digest and budget, Chameleon only reads its result. An
        unfinished run may continue even if the digest changes, as long as its records still apply
        (``pipeline.binding``).
        """
        skipped = {"output", "budget", "require", "preset", "records"}
        sections = self.registry.sections.items()
        skipped |= {name for name, section in sections if not section.measured}
        document = {key: value for key, value in self.document.items() if key not in skipped}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:24]
