"""Kernel Tuner's strategies as rivals, in its simulation of a recorded table."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    ChameleonError,
    ConfigError,
    Measurement,
    Rival,
    StageRef,
    Task,
    create_stage,
)
from chameleon_system.api import temporary_folder

from chameleon_bench._rivals import KernelTunerOptions
from chameleon_bench._suites.recorded import replayed

_MILLISECONDS = 1e3

_ABOUT = {"device_name": "recorded", "kernel_name": "recorded", "problem_size": [1]}


@attrs.frozen(kw_only=True)
class _Cache:
    """A recorded table as Kernel Tuner reads it.

    Attributes:
        parameters: The values of each parameter.
        measurements: The measurement of each configuration, by the key that Kernel Tuner gives it.
    """

    parameters: Mapping[str, list[Any]]
    measurements: Mapping[str, Measurement]

    @classmethod
    def of(cls, task: Task, replay: Mapping[str, Any]) -> _Cache:
        """The cache of a task that is a recorded table."""
        provider = create_stage("spaces", "table")
        stage = StageRef(factory=f"{type(provider).__module__}:{type(provider).__qualname__}")
        runner = create_stage("runners", {"name": "replay", **replay})
        space = provider.design_space(task)
        measurements = replayed(task, space, runner, stage)
        parameters = {
            knob.name: [_plain(knob.decode(index)) for index in range(knob.cardinality)]
            for knob in space.knobs
        }
        values = list(parameters.values())
        by_key = {
            _key(values[knob][index] for knob, index in enumerate(measured.config)): measured
            for measured in measurements
        }
        return cls(parameters=parameters, measurements=by_key)

    def write(self, folder: Path) -> str:
        """Write a cache file into a folder, and return its path."""
        names = list(self.parameters)
        about = {**_ABOUT, "tune_params_keys": names, "tune_params": self.parameters}
        values = list(self.parameters.values())
        rows = {
            key: {
                name: options[index]
                for name, options, index in zip(names, values, measured.config, strict=True)
            }
            | {
                "time": measured.cost * _MILLISECONDS if measured.ok else "RuntimeFailedConfig",
                "compile_time": measured.build_seconds * _MILLISECONDS,
                "benchmark_time": measured.run_seconds * _MILLISECONDS,
                "verification_time": 0,
            }
            for key, measured in self.measurements.items()
        }
        file = folder / "cache.json"
        file.write_text(json.dumps({**about, "objective": "time", "cache": rows}), encoding="utf-8")
        return str(file)


class KernelTuner(Rival):
    """One of Kernel Tuner's strategies, which this process runs on a recorded table."""

    measures_hardware: ClassVar[bool] = False

    def __init__(self, options: KernelTunerOptions) -> None:
        self._options = options

    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> Rival.Trace:
        """Search a recorded table; the trace has a point for each new configuration.

        Its seconds are the recorded ones of building and running, and the real ones of the
        strategy.

        Raises:
            ConfigError: Kernel Tuner is not installed, or the task is no recorded table.
            ChameleonError: The strategy failed, or found no configuration.
        """
        cache = _Cache.of(task, self._options.replay)
        limits = {"max_fevals": measurements, "time_limit": wall_seconds}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        # Most strategies draw from the two global generators.
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - Kernel Tuner draws from it
        results = self._results(cache, {**self._options.strategy_options, **given})
        trace = self._trace(cache, results, measurements)
        if not trace.measurements:
            raise ChameleonError(
                f"Kernel Tuner's strategy {self._options.strategy!r} measured nothing",
                hint="Give the strategy other options.",
            )
        return trace

    def _results(self, cache: _Cache, options: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """All results of a run, in order; a configuration that came again is there again."""
        try:
            import kernel_tuner  # noqa: PLC0415 - an optional dependency
            from constraint import FunctionConstraint  # noqa: PLC0415 - Kernel Tuner installs it
        except ImportError as error:
            raise ConfigError(
                f"Kernel Tuner cannot be imported: {error}",
                hint="install it: pip install kernel_tuner==1.5.0",
            ) from error

        def recorded(*values: Any) -> bool:
            return _key(values) in cache.measurements

        with temporary_folder() as folder:
            results, _ = kernel_tuner.tune_kernel(
                _ABOUT["kernel_name"],
                "",
                tuple(_ABOUT["problem_size"]),
                [],
                dict(cache.parameters),
                restrictions=[FunctionConstraint(recorded)],
                cache=cache.write(Path(folder)),
                simulation_mode=True,
                strategy=self._options.strategy,
                strategy_options=dict(options),
                lang="C",
                quiet=True,
            )
        found: Sequence[Mapping[str, Any]] = results
        return found

    def _trace(
        self, cache: _Cache, results: Iterable[Mapping[str, Any]], limit: int | None
    ) -> Rival.Trace:
        seen: set[str] = set()
        at, best, failed = [], [], 0
        clock, lowest = 0.0, math.inf
        for result in results:
            clock += float(result.get("strategy_time", 0.0)) / _MILLISECONDS
            key = _key(result[name] for name in cache.parameters)
            measured = cache.measurements.get(key)
            if measured is None or key in seen or len(seen) == limit:
                continue
            seen.add(key)
            # Two points must not be at the same time.
            clock += measured.build_seconds + measured.run_seconds or 1e-9
            lowest = min(lowest, measured.cost)
            failed += not measured.ok
            at.append(clock)
            best.append(lowest)
        return Rival.Trace(
            at_seconds=tuple(at),
            measurements=tuple(range(1, len(at) + 1)),
            best_seconds=tuple(best),
            failed=failed,
            final_seconds=lowest if math.isfinite(lowest) else None,
            details={"strategy": self._options.strategy},
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else "x".join(map(str, value))


def _key(values: Iterable[Any]) -> str:
    return ",".join(map(str, values))
