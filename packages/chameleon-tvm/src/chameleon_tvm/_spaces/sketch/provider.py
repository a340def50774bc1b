"""The space provider ``sketch``, for any TensorIR function on any target of TVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import structlog
from chameleon_core.plugin_api import (
    Arrays,
    Builder,
    ConfigError,
    Configs,
    Constraint,
    DesignSpace,
    FeatureBlock,
    InvalidConfigurationError,
    SpaceProvider,
    Task,
    Values,
    fixed_columns,
    resolved,
)
from numpy.typing import NDArray

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._building.kernel import Program
from chameleon_tvm._device.targets import target_info, tvm_target
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._quick_tvm import Target
from chameleon_tvm._spaces.sketch.constraints import (
    Rows,
    cpu_constraints,
    gpu_constraints,
    location_constraint,
    with_whole_vectors,
)
from chameleon_tvm._spaces.sketch.generator import GeneratedSketches, generate
from chameleon_tvm._spaces.sketch.lowered import PLAIN_DTYPES, loops_of
from chameleon_tvm._spaces.sketch.model import NestModel, Quantities, merged_model
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.packing import layout_free
from chameleon_tvm._spaces.sketch.plan import SKETCH, merge
from chameleon_tvm._spaces.sketch.replay import replay
from chameleon_tvm._spaces.sketch.schedule import Scheduled, replaced_choices, schedule

CYCLES = "cycles"
_DRAWN = 1 << 15
_APART = 3
_ASKED = 8
"""Largest number of programs that are made per first guess, since many may turn out to be equal."""


def feature_block(models: Sequence[NestModel | None]) -> FeatureBlock | None:
    """The features that cost models get from the models of the loop nests, as logarithms.

    The result is None if no sketch has a model.
    """
    names = _names(models)
    if not names:
        return None
    alike = merged_model(models)

    def compute(values: Values) -> NDArray[np.float64]:
        out = np.zeros((len(values[SKETCH]), len(names)))
        for rows, quantities in _quantities(models, alike, values):
            columns: Any = np.stack([quantities[name] for name in names], axis=1)
            out[rows] = np.log2(1 + columns)
        return out

    return FeatureBlock(names=tuple(f"nest.{name}" for name in names), compute=compute)


def _quantities(
    models: Sequence[NestModel | None], alike: NestModel | None, values: Values
) -> Iterator[tuple[Any, Quantities]]:
    """Yield groups of the n configurations with the quantities of their nests.

    Args:
        alike: A model of all sketches, or None. It is evaluated only once, because the cost hardly
            depends on the number of configurations.
    """
    sketch = values[SKETCH]
    if alike is not None:
        yield slice(None), alike.at(values).quantities(values, len(sketch))
        return
    for number, model in enumerate(models):
        rows = np.flatnonzero(sketch == number)
        if model is not None and len(rows):
            yield rows, model.quantities(Rows(values, rows), len(rows))


def _names(models: Sequence[NestModel | None]) -> list[str]:
    """Names of the quantities that all sketches with a model have, in a fixed order."""
    described = [model.names() for model in models if model is not None]
    common = set.intersection(*map(set, described)) if described else set()
    return [name for name in described[0] if name in common] if described else []


def first_guesses(
    space: DesignSpace, models: Sequence[NestModel | None], *, count: int, seed: int
) -> Configs:
    """The configurations that the nest models rank highest, without near duplicates."""
    rng = np.random.default_rng(seed)
    drawn = space.sample(_DRAWN, rng)
    if not len(drawn) or not count:
        return drawn[:0]
    ranked = drawn[np.argsort(estimated_cycles(space, models, drawn), kind="stable")]
    chosen, asked = drawn[:0], 0
    for apart in range(_APART, 0, -1):
        for config in ranked:
            if len(chosen) == count or asked == _ASKED * count:
                return chosen
            if ((chosen != config).sum(axis=1) < apart).any():
                continue
            guess, asked = resolved(space.resolve, config[None]), asked + 1
            if space.legal(guess)[0] and ((chosen != guess).sum(axis=1) >= apart).all():
                chosen = np.concatenate([chosen, guess])
    return chosen


def estimated_cycles(
    space: DesignSpace, models: Sequence[NestModel | None], configs: Configs
) -> NDArray[np.float64]:
    """The estimated cycles of each configuration; infinity for sketches without a model.

    Args:
        models: The model of each sketch's loop nest; None if there is none.
        configs: The configurations, shape (n, knobs).
    """
    cycles = np.full(len(configs), np.inf)
    for rows, quantities in _quantities(models, None, space.values(configs)):
        cycles[rows] = quantities[CYCLES]
    return cycles


Config = tuple[int, ...]

_TRIED = 32
"""Number of random configurations to try. If TVM makes no program of any of them, a warning is
logged."""

log = structlog.get_logger()


class SketchSpace(SpaceProvider):
    """The space of MetaSchedule's sketches for a task, with named knobs."""

    def __init__(self, options: SketchOptions) -> None:
        self._options = options

    def design_space(self, task: Task) -> DesignSpace:
        return SketchPlan(task, operator_of(task), self._options).space

    def builder(self, task: Task, *, threads: int) -> Builder:
        return SketchBuilder(task, self._options, threads=threads)


class SketchPlan:
    """The sketches of a task, their design space, and the function of each configuration.

    Args:
        task: The task.
        operator: The task's operator.
    """

    def __init__(self, task: Task, operator: Operator, options: SketchOptions) -> None:
        target = tvm_target(task.target)
        function = operator.prim_func()
        self.parameters = tuple(str(parameter.name) for parameter in function.params)
        function = layout_free(function, operator.constants if options.rewrite_layout else ())
        generated = generate(function, target, rules=options.rules, seed=options.seed)
        if not generated.sketches:
            raise ConfigError(
                f"TVM's rules make no sketch for task {task.name!r}",
                hint="Compile the function as it is, or write a schedule of your own.",
            )
        self._read(task, target, generated, options)

    def _read(
        self, task: Task, target: Target, generated: GeneratedSketches, options: SketchOptions
    ) -> None:
        """Make knobs and models for the sketches."""
        self._options = options
        self._name = task.name
        self._target = target
        self.generated = generated
        replayed = [replay(generated.base, sketch) for sketch in generated.sketches]
        self._knobs, self.decisions = merge(
            [samples for samples, _ in replayed], max_choices=options.max_choices
        )
        self.nests = [nest for _, nest in replayed]
        self.models: list[NestModel | None] = [None] * len(self.nests)
        if target.kind.name == "llvm":
            info = target_info(task.target)
            self.models = [
                None
                if nest is None
                else NestModel(nest=nest, info=info, rewritten=options.rewrite_sums)
                for nest in self.nests
            ]
        if options.prune:
            self._knobs = with_whole_vectors(self._knobs, self.models)

    @cached_property
    def space(self) -> DesignSpace:
        """The design space, with constraints, features and first guesses."""
        features = feature_block(self.models)
        required = [location_constraint(self.nests)]
        if self._target.kind.name == "cuda":
            required += gpu_constraints(self.nests, self._target)
        pruning = self._pruning(required)
        space = self._assemble([*pruning, *required], features)
        if any(model is not None for model in self.models) and self._options.start:
            guesses = first_guesses(
                space, self.models, count=self._options.start, seed=self._options.seed
            )
            space = self._assemble(space.constraints, features, guesses)
        self._warn_of_no_program(space)
        return space

    def _warn_of_no_program(self, space: DesignSpace) -> None:
        """Log a warning if TVM makes no program of any of some random configurations."""
        drawn = space.sample(_TRIED, np.random.default_rng(self._options.seed)).tolist()
        if not drawn or any(self.resolved(tuple(config)) is not None for config in drawn):
            return
        try:
            self.scheduled(drawn[0])
        except InvalidConfigurationError as error:
            log.warning(
                "TVM makes no program of this operator's sketches, so there is nothing to tune; "
                "compile it as it is, or write a template of your own",
                task=self._name,
                reason=str(error),
            )

    def scheduled(self, config: Sequence[int]) -> Scheduled:
        """Make the scheduled function of a configuration.

        Args:
            config: The knob indices of the configuration.

        Raises:
            InvalidConfigurationError: The configuration has no program.
        """
        return schedule(self.generated, self.decisions, self.plain.decode(config))

    def resolved(self, config: tuple[int, ...]) -> Config | None:
        """The configuration that TVM really compiles for another one; None without a program.

        The loops at which a block can be computed depend on other choices, such as tiles and the
        locations of the block's readers. If a chosen loop does not exist, TVM takes the next outer
        loop.
        """
        if config not in self._resolved:
            self._resolved[config] = legal = self._made(config)
            if legal is not None:
                self._resolved[legal] = legal
        return self._resolved[config]

    @cached_property
    def _resolved(self) -> dict[Config, Config | None]:
        """A cache of ``resolved``: earlier configurations and their results."""
        return {}

    def _made(self, config: Config) -> Config | None:
        values = self.plain.decode(config)
        try:
            replaced = replaced_choices(self.generated, self.decisions, values)
            columns = fixed_columns(self.plain, replaced)
        except (InvalidConfigurationError, ConfigError):
            return None
        return tuple(columns.get(column, index) for column, index in enumerate(config))

    @cached_property
    def plain(self) -> DesignSpace:
        """The design space without constraints and features, which suffices to decode."""
        return DesignSpace(self._knobs)

    def _assemble(
        self,
        constraints: Sequence[Constraint],
        features: FeatureBlock | None,
        first_guesses: Configs | None = None,
    ) -> DesignSpace:
        return DesignSpace(
            self._knobs,
            constraints=constraints,
            features=features,
            first_guesses=first_guesses,
            resolve=self.resolved,
            variant=self._variant,
        )

    @property
    def _variant(self) -> tuple[str, ...]:
        """Names of rewriting options that are switched off, which change the knobs' programs.

        The tuple is empty for the defaults, so that earlier records remain valid.
        """
        rewritten = {"rewrite_layout": self._options.rewrite_layout}
        if self._target.kind.name == "llvm":
            rewritten["rewrite_sums"] = self._options.rewrite_sums
        return tuple(f"{name}: false" for name, holds in rewritten.items() if not holds)

    def _pruning(self, required: list[Constraint]) -> list[Constraint]:
        """The pruning constraints that, together with the required ones, leave configurations."""
        if not self._options.prune or not any(self.models):
            return []
        pruning: list[Constraint] = []
        for constraint in cpu_constraints(self.models):
            trial = self._assemble([*required, *pruning, constraint], None)
            if len(trial.sample(16, np.random.default_rng(self._options.seed), tries=8)):
                pruning.append(constraint)
            else:
                log.info("a pruning constraint is left out", reason=constraint.reason)
        return pruning


class SketchBuilder(TVMBuilder):
    """Builds kernels of configurations of the space ``sketch``.

    Args:
        task: The task.
    """

    def __init__(self, task: Task, options: SketchOptions, *, threads: int) -> None:
        super().__init__(task, threads=threads)
        self._plan = SketchPlan(task, self.operator, options)
        self._physical = self.operator.arrange(self.inputs)
        dtypes = {str(parameter.dtype) for parameter in self.operator.prim_func().params}
        on_cpu = tvm_target(task.target).kind.name == "llvm"
        self._short = options.rewrite_sums and on_cpu and dtypes <= PLAIN_DTYPES

    def use(self, inputs: Arrays) -> None:
        super().use(inputs)
        self._physical = self.operator.arrange(inputs)

    def program(self, config: Sequence[int]) -> Program:
        scheduled = self.scheduled(config)
        return Program(
            function=loops_of(scheduled.function) if self._short else scheduled.function,
            inputs=scheduled.packed(self._plan.parameters, self._physical),
            unpack=self.operator.logical,
            plain_loops=self._short,
        )

    def scheduled(self, config: Sequence[int]) -> Scheduled:
        """The scheduled function of a configuration, without building its kernel."""
        if len(config) != len(self._plan.plain.knobs):
            raise InvalidConfigurationError(
                f"the space has {len(self._plan.plain.knobs)} knobs, the configuration "
                f"{len(config)}"
            )
        return self._plan.scheduled(config)
