"""A pipeline after it is read: every stage chosen, every option checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import attrs

from chameleon_core.pipeline.nodes import Mark, Node, Problem
from chameleon_core.plugins.factory import make_stage
from chameleon_core.plugins.kinds import STAGE_KINDS
from chameleon_core.plugins.options import option
from chameleon_core.plugins.records import PluginRecord, SectionRecord


@attrs.frozen(kw_only=True)
class FixedKnob:
    """A knob that holds one value.

    Attributes:
        knob: its name.
        value: the value, as JSON.
        operator: name of the only operator that is meant; None for every one that has the knob.
        mark: where it was written.
    """

    knob: str
    value: Any
    operator: str | None = None
    mark: Mark = attrs.field(eq=False)


def fixed_knobs(node: Node | None, problems: list[Problem]) -> tuple[FixedKnob, ...]:
    """The knobs that a pipeline fixes.

    Whether operators have them is not known before their spaces are made.

    Args:
        node: the section: values by knob, or a mapping of such below an operator's name; None, or
            null, for no such section.
        problems: what is wrong is added here.
    """
    if node is None or node.value is None:
        return ()
    if not node.is_mapping:
        wrong = f"'fix' must be a mapping of knobs to values, not {node.in_words()}"
        problems.append(Problem(mark=node.mark, message=wrong))
        return ()
    knobs = [*_knobs(node, None)]
    for knob in knobs:
        if knob.value is None or isinstance(knob.value, dict):
            wrong = f"knob '{knob.knob}' is fixed to no value; write one of its values"
            problems.append(Problem(mark=knob.mark, message=wrong))
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
    """The owner of a budget."""

    TASK = "task"
    NETWORK = "network"


AtOnce = int | Literal["auto"]
"""A number from 1, or as many as suit the runner."""


def _auto_or_positive(_: object, attribute: attrs.Attribute[Any], value: AtOnce) -> None:
    if value != "auto" and value < 1:
        raise ValueError(f"'{attribute.name}' must be 'auto' or at least 1, not {value!r}")


SameFailure = int | Literal["auto"]
"""A number of measurements from 1, or enough to rule out chance."""


LIMITS = ("measurements", "wall_time")
"""What a budget limits: who names one of them means that one, and no default of the other."""

_MEASUREMENTS = 256


@attrs.frozen(kw_only=True)
class Budget:
    """How much a run may spend. It ends at whichever limit comes first.

    Attributes:
        wall_time: wall-clock in seconds, or None for no limit.
        measurements: configurations measured at most, or None for no limit; 256 unless there is
            a limit on the wall-clock. With 0 each task gets what its cost model, trained
            beforehand, or else its space recommends.
        unpredicted: ``measurements`` of tasks about which the cost model knows nothing before the
            first of them, or None for as many as of the others.
        batch_size: configurations measured per round, or None for what suits the runner.
        plan_size: candidates asked of the explorer per round, from which the sampler keeps a
            batch, or None for eight batches.
        tasks_at_once: tasks that have a batch in flight at the same time; ``auto`` for as many as
            keep the runner's devices busy. That is one if a search would disturb what is timed.
        patience: a task ends after this many measurements in a row none of which is better by a
            hundredth; timing varies by less. None spends the whole budget.
        latency: a run ends once the best costs of all tasks, times their weights, total at
            most this many seconds; None for no such target.
        same_failure: a task, or the whole run, ends after this many measurements if nothing was
            valid and all failed alike. ``auto`` is two batches, or 16 if that is more; None is
            never. Recorded tables, which cost nothing, are replayed to the end.
        scope: whether ``measurements`` and ``wall_time`` hold for each task or for all together.
    """

    wall_time: float | None = option(
        None, "wall-clock limit, such as 20m", above=0.0, duration=True
    )
    measurements: int | None = attrs.field(
        default=attrs.Factory(
            lambda self: _MEASUREMENTS if self.wall_time is None else None, takes_self=True
        ),
        validator=attrs.validators.optional(attrs.validators.ge(0)),
        metadata={"help": "configurations measured at most; null for no limit"},
    )
    unpredicted: int | None = option(
        None,
        "the same for tasks about which the cost model knows nothing beforehand; as many as for "
        "the others by default",
        at_least=0,
    )
    batch_size: int | None = option(
        None, "configurations measured per round; what suits the runner by default", at_least=1
    )
    plan_size: int | None = option(
        None, "candidates asked of the explorer per round; 8 batches by default", at_least=1
    )
    tasks_at_once: AtOnce = option(
        "auto", "tasks that have a batch in flight at the same time, or auto", _auto_or_positive
    )
    patience: int | None = option(
        None, "measurements after which a task ends unless one is better by 1 %", at_least=1
    )
    latency: float | None = option(
        None,
        "the run ends when all operators together take no longer, such as 9ms",
        above=0.0,
        duration=True,
    )
    same_failure: SameFailure | None = option(
        "auto",
        "measurements that all fail alike after which a run ends, auto, or null",
        attrs.validators.optional(_auto_or_positive),
    )
    scope: Scope = option(Scope.TASK, "what the limits hold for: task or network")

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
    """A result the run must reach; if it does not, the command exits with code 5.

    Attributes:
        network_ratio: smallest accepted speed of the delivered network relative to the fastest of
            what else runs it here (rival's seconds over its own), or None.
        min_ratio: smallest accepted speed of every tuned operator relative to the baseline's
            (baseline seconds over tuned seconds), or None.
        against: name of the baseline; needed with ``min_ratio``, and not without.
    """

    network_ratio: float | None = option(
        None, "smallest accepted speed of the network relative to the fastest rival", above=0.0
    )
    min_ratio: float | None = option(
        None, "smallest accepted speed relative to the baseline", above=0.0
    )
    against: str | None = option(None, "name of the baseline")

    def __attrs_post_init__(self) -> None:
        if (self.min_ratio is None) != (self.against is None):
            raise ValueError("'min_ratio' and 'against' belong together")
        if self.min_ratio is None and self.network_ratio is None:
            raise ValueError("asks for nothing; name 'network_ratio', or 'min_ratio' and 'against'")


@attrs.frozen(kw_only=True)
class StageSpec:
    """One chosen implementation with its checked options.

    Attributes:
        kind: a key of ``chameleon_core.plugins.kinds.KINDS``, such as ``explorers``.
        name: what the pipeline calls it, ``dist:name`` if it had to be told apart.
        record: what its plugin registered.
        options: an instance of ``record.options``.
        options_json: the same options, defaults included, as JSON values.
        distribution: what its plugin belongs to; empty if nobody says.
        by_default: whether nobody wrote it: the default of another stage's option names it.
    """

    kind: str
    name: str
    record: PluginRecord
    options: Any
    options_json: dict[str, Any] = attrs.field(factory=dict)
    distribution: str = ""
    by_default: bool = False

    def to_json(self) -> dict[str, Any] | str:
        """The stage as a pipeline file names it: in full, or by the name that a default has."""
        return self.name if self.by_default else {"name": self.name, **self.options_json}

    @property
    def factory(self) -> str:
        """``"module:Class"``; with ``options_json`` the stage as data (a ``StageRef``)."""
        return self.record.factory

    def create(self, context: Any = None) -> Any:
        """Import the implementation and make it.

        Args:
            context: a ``StageContext`` (or what the kind asks for) if the kind takes one.

        Raises:
            PluginError: it cannot be imported or made.
        """
        return make_stage(STAGE_KINDS[self.kind], self.record, self.options, context)


@attrs.frozen(kw_only=True)
class Subject:
    """The subject of a pipeline: all that is needed to make something of a run's records.

    Attributes:
        model: the frontend.
        space: the space provider.
        sections: those of plugins that say something, by name.
        fix: knobs that hold one value.
    """

    model: StageSpec
    space: StageSpec
    sections: Mapping[str, Any] = attrs.field(factory=dict)
    fix: tuple[FixedKnob, ...] = ()


# Without slots: a pipeline is a subject as well, and two bases cannot both have some.
@attrs.frozen(kw_only=True, slots=False)
class SearchChoice:
    """The search of a pipeline, whatever its space.

    Attributes:
        explorer: the search algorithm.
        cost_model: the cost model.
        sampler: the sampler.
        synthesizer: the synthesizer.
        budget: how much may be spent.
        seed: the run's seed.
    """

    explorer: StageSpec
    cost_model: StageSpec
    sampler: StageSpec
    synthesizer: StageSpec
    budget: Budget = attrs.field(factory=Budget)
    seed: int = 0


@attrs.frozen(kw_only=True)
class ResolvedPipeline(Subject, SearchChoice):
    """A pipeline that can be run: presets expanded, defaults filled in, everything checked.

    Attributes:
        target: what the user wrote after ``target:``, a mapping as JSON; ``target_resolver`` makes
            it canonical.
        target_resolver: a stage of kind ``targets``, or None if none is installed.
        runner: the runner.
        scheduler: decides which task gets the next batch.
        warm_start: folders of earlier runs, whose best configurations are measured first.
        records: databases of what was measured before, the first of which is added to; empty for
            none, and None if nobody says.
        baselines: what the winners are compared with, in order.
        known_sections: the sections that plugins bring, by name.
        require: a result that must be reached, or None.
        output: the run folder, absolute. A relative one is taken from the working folder.
        preset: the preset that was expanded, or None.
        source: the file it was read from, absolute, or None.
        document: the expanded pipeline as JSON values; loading it again gives the same pipeline.
    """

    target: str
    target_resolver: StageSpec | None = None
    runner: StageSpec
    scheduler: StageSpec
    warm_start: tuple[Path, ...] = ()
    records: tuple[StageSpec, ...] | None = None
    baselines: tuple[StageSpec, ...] = ()
    known_sections: Mapping[str, SectionRecord] = attrs.field(factory=dict, repr=False)
    require: Requirement | None = None
    output: Path
    preset: str | None = None
    source: Path | None = None
    document: Mapping[str, Any] = attrs.field(factory=dict, repr=False)

    @property
    def digest(self) -> str:
        """Identity of everything but output, budget, requirements and record databases.

        A finished run of the same digest and budget is only read. A folder is bound to less
        (``pipeline.binding``).
        """
        skipped = {"output", "budget", "require", "preset", "records"}
        skipped |= {name for name, section in self.known_sections.items() if not section.measured}
        document = {key: value for key, value in self.document.items() if key not in skipped}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:24]
