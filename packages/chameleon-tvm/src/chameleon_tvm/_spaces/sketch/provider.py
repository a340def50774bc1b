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
    InvalidConfigurationError,
    SpaceProvider,
    Task,
    Values,
)
from numpy.typing import NDArray

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._building.kernel import Program
from chameleon_tvm._device.targets import target_info, tvm_target
from chameleon_tvm._operators.base import Operator, operator_of
from chameleon_tvm._quick_tvm import Target
from chameleon_tvm._spaces.sketch.constraints import (
    RowValues,
    cpu_constraints,
    gpu_constraints,
    keep_full_vectors,
    location_constraint,
)
from chameleon_tvm._spaces.sketch.generator import GeneratedSketches, generate
from chameleon_tvm._spaces.sketch.lowering import PLAIN_DTYPES, lower_sketch
from chameleon_tvm._spaces.sketch.model import NestModel, Quantities, common_model
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.packing import layout_free
from chameleon_tvm._spaces.sketch.plan import SKETCH, merge
from chameleon_tvm._spaces.sketch.replay import replay
from chameleon_tvm._spaces.sketch.schedule import ScheduledFunction, replaced_choices, schedule

CYCLES = "cycles"
_SAMPLES = 1 << 15
_MIN_DISTANCE = 3
_PROGRAMS_PER_GUESS = 8
"""Largest number of programs that are made per first guess, since many may turn out to be equal."""


def feature_block(models: Sequence[NestModel | None]) -> DesignSpace.FeatureBlock | None:
    """The logarithms of the nest models' quantities as features; None if no sketch has a model."""
    names = _names(models)
    if not names:
        return None
    common = common_model(models)

    def compute(values: Values) -> NDArray[np.float64]:
        out = np.zeros((len(values[SKETCH]), len(names)))
        for rows, quantities in _quantities(models, common, values):
            columns: Any = np.stack([quantities[name] for name in names], axis=1)
            out[rows] = np.log2(1 + columns)
        return out

    return DesignSpace.FeatureBlock(names=tuple(f"nest.{name}" for name in names), compute=compute)


def _quantities(
    models: Sequence[NestModel | None], common: NestModel | None, values: Values
) -> Iterator[tuple[Any, Quantities]]:
    """Yield groups of configurations with the quantities of their nests."""
    sketch = values[SKETCH]
    if common is not None:
        yield slice(None), common.for_configurations(values).quantities(values, len(sketch))
        return
    for number, model in enumerate(models):
        rows = np.flatnonzero(sketch == number)
        if model is not None and len(rows):
            yield rows, model.quantities(RowValues(values, rows), len(rows))


def _names(models: Sequence[NestModel | None]) -> list[str]:
    """Names of the quantities that all sketches with a model have, in a fixed order."""
    names = [model.names() for model in models if model is not None]
    common = set.intersection(*map(set, names)) if names else set()
    return [name for name in names[0] if name in common] if names else []


def first_guesses(
    space: DesignSpace, models: Sequence[NestModel | None], *, count: int, seed: int
) -> Configs:
    """The configurations that the nest models rank highest, without near duplicates."""
    rng = np.random.default_rng(seed)
    sample = space.sample(_SAMPLES, rng)
    if not len(sample) or not count:
        return sample[:0]
    ranked = sample[np.argsort(estimated_cycles(space, models, sample), kind="stable")]
    guesses, programs = sample[:0], 0
    for distance in range(_MIN_DISTANCE, 0, -1):
        for config in ranked:
            if len(guesses) == count or programs == _PROGRAMS_PER_GUESS * count:
                return guesses
            if ((guesses != config).sum(axis=1) < distance).any():
                continue
            guess, programs = space.resolved(config[None]), programs + 1
            if space.legal(guess)[0] and ((guesses != guess).sum(axis=1) >= distance).all():
                guesses = np.concatenate([guesses, guess])
    return guesses


def estimated_cycles(
    space: DesignSpace, models: Sequence[NestModel | None], configs: Configs
) -> NDArray[np.float64]:
    """The estimated cycles of configurations, shape (n, knobs); infinity without a model."""
    cycles = np.full(len(configs), np.inf)
    for rows, quantities in _quantities(models, None, space.values(configs)):
        cycles[rows] = quantities[CYCLES]
    return cycles


Config = tuple[int, ...]

_PROBED = 32
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
        self._read_sketches(task, target, generated, options)

    def _read_sketches(
        self, task: Task, target: Target, generated: GeneratedSketches, options: SketchOptions
    ) -> None:
        """Make knobs and models for the sketches."""
        self._options = options
        self._name = task.name
        self._target = target
        self.generated = generated
        replays = [replay(generated.base, sketch) for sketch in generated.sketches]
        self._knobs, self.decisions = merge(
            [samples for samples, _ in replays], max_choices=options.max_choices
        )
        self.nests = [nest for _, nest in replays]
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
            self._knobs = keep_full_vectors(self._knobs, self.models)

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
        sample = space.sample(_PROBED, np.random.default_rng(self._options.seed)).tolist()
        if not sample or any(self.resolved(tuple(config)) is not None for config in sample):
            return
        try:
            self.scheduled(sample[0])
        except InvalidConfigurationError as error:
            log.warning(
                "no_program_of_any_sketch",
                task=self._name,
                problem=str(error),
                hint="Compile it as it is, or write a template of your own.",
            )

    def scheduled(self, config: Sequence[int]) -> ScheduledFunction:
        """Make the scheduled function of a configuration.

        Args:
            config: The knob indices of the configuration.

        Raises:
            InvalidConfigurationError: The configuration has no program.
        """
        return schedule(self.generated, self.decisions, self.bare_space.decode(config))

    def resolved(self, config: tuple[int, ...]) -> Config | None:
        """The configuration that TVM really compiles for another one; None without a program.

        If a chosen compute location does not exist, TVM takes the next outer loop.
        """
        if config not in self._resolved:
            self._resolved[config] = legal = self._resolve(config)
            if legal is not None:
                self._resolved[legal] = legal
        return self._resolved[config]

    @cached_property
    def _resolved(self) -> dict[Config, Config | None]:
        """A cache of ``resolved``: earlier configurations and their results."""
        return {}

    def _resolve(self, config: Config) -> Config | None:
        values = self.bare_space.decode(config)
        try:
            replaced = replaced_choices(self.generated, self.decisions, values)
            columns = self.bare_space.columns(replaced)
        except (InvalidConfigurationError, ConfigError):
            return None
        return tuple(columns.get(column, index) for column, index in enumerate(config))

    @cached_property
    def bare_space(self) -> DesignSpace:
        """The design space without constraints and features, which suffices to decode."""
        return DesignSpace(self._knobs)

    def _assemble(
        self,
        constraints: Sequence[Constraint],
        features: DesignSpace.FeatureBlock | None,
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
        """Names of rewriting options that are off; none by default, so earlier records hold."""
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
                log.info("pruning_constraint_left_out", reason=constraint.reason)
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
        self._plain_loops = options.rewrite_sums and on_cpu and dtypes <= PLAIN_DTYPES

    def use(self, inputs: Arrays) -> None:
        super().use(inputs)
        self._physical = self.operator.arrange(inputs)

    def program(self, config: Sequence[int]) -> Program:
        scheduled = self.scheduled(config)
        return Program(
            function=lower_sketch(scheduled.function) if self._plain_loops else scheduled.function,
            inputs=scheduled.pack_inputs(self._plan.parameters, self._physical),
            unpack=self.operator.logical,
            plain_loops=self._plain_loops,
        )

    def scheduled(self, config: Sequence[int]) -> ScheduledFunction:
        """The scheduled function of a configuration, without building its kernel."""
        if len(config) != len(self._plan.bare_space.knobs):
            raise InvalidConfigurationError(
                f"the space has {len(self._plan.bare_space.knobs)} knobs, the configuration "
                f"{len(config)}"
            )
        return self._plan.scheduled(config)
