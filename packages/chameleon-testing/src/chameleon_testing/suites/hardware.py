"""Suites of what makes and measures code: spaces, runners, baselines, rivals."""

from __future__ import annotations

import json
import math
import unittest
from typing import Any, ClassVar

import numpy as np
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Contender, MeasureJob, RivalTrace, StageRef

from chameleon_testing.conformance_cases import SEED
from chameleon_testing.conformance_hardware import (
    check_baseline,
    check_kernel,
    check_runner,
    check_space_provider,
)
from chameleon_testing.sentences import require
from chameleon_testing.suites.base import TaskSuite

_SAMPLE = 4
"""Random configurations that are measured."""


class SpaceSuite(TaskSuite):
    """Checks of a space provider, on ``task``.

    Attributes:
        builds: whether its configurations are built in this process; False where only a runner
            of its own knows what to do with them.
    """

    kind = "spaces"
    builds: ClassVar[bool] = True

    def test_space(self) -> None:
        """A task's design space is the same in every process, and holds legal configurations."""
        check_space_provider(self.make, self.given_task())

    def test_kernel(self) -> None:
        """The first guess, or else a random configuration, computes what the reference does."""
        task = self.given_task()
        if not self.builds:
            raise unittest.SkipTest("its configurations are not built in this process")
        provider = self.make()
        space = provider.design_space(task)
        drawn = space.sample(1, np.random.default_rng(SEED))
        (config, *_) = np.concatenate([space.first_guesses, drawn]).tolist()
        builder = provider.builder(task, threads=1)
        check_kernel(builder, builder.build(config), where=f"{self.where}, configuration {config}")


class RunnerSuite(TaskSuite):
    """Checks of a runner.

    Attributes:
        job: what it measures; it may hold configurations that fail.
    """

    kind = "runners"
    job: ClassVar[MeasureJob | None] = None

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        found = super().subjects(pipeline)
        if "task" in found:
            space = pipeline.space.create().design_space(found["task"])
            drawn = space.sample(_SAMPLE, np.random.default_rng(SEED))
            found["job"] = MeasureJob(
                task=found["task"],
                space=StageRef.of(pipeline.space),
                configs=[tuple(config) for config in drawn.tolist()],
            )
        return found

    def given_job(self) -> MeasureJob:
        """The job.

        Raises:
            unittest.SkipTest: there is none.
        """
        if self.job is None:
            raise unittest.SkipTest(
                "it needs configurations: set the suite's attribute 'job', or name a pipeline that "
                "uses the plugin"
            )
        return self.job

    def test_measurements(self) -> None:
        """It gives one measurement per configuration, with times or a failure in words."""
        check_runner(self.make, self.given_job())

    def test_comparison(self) -> None:
        """It times contenders against each other, one measurement each, in their order."""
        job = self.given_job()
        contenders = [
            Contender(name="tuned", stage=job.space, config=config) for config in job.configs[:2]
        ]
        with self.make() as runner:
            runner.prepare(job.space)
            found = runner.compare(job.task, contenders)
        require(
            [one.config for one in found] == [one.config for one in contenders],
            f"{self.where}: a comparison gives other measurements than one per contender, in order",
        )

    def test_conditions(self) -> None:
        """What it says of itself is JSON, and lanes and batch size are numbers that make sense."""
        with self.make() as runner:
            for what, told in (
                ("describe", runner.describe()),
                ("conditions", runner.conditions()),
            ):
                try:
                    json.dumps(told, allow_nan=False)
                except (TypeError, ValueError) as error:
                    require(condition=False, sentence=f"{self.where}: {what}() is no JSON: {error}")
            require(runner.batch_size >= 1, f"{self.where}: a batch of {runner.batch_size}")
            require(runner.lanes >= 0, f"{self.where}: has {runner.lanes} lanes")
            runner.close()


class BaselineSuite(TaskSuite):
    """Checks of a baseline, on ``task``."""

    kind = "baselines"

    def test_variants(self) -> None:
        """Each of its variants computes the task's outputs, and has a clock."""
        check_baseline(self.make, self.given_task())


class RivalSuite(TaskSuite):
    """Checks of a rival, which tunes ``task`` with few measurements.

    Attributes:
        measurements: that it may make.
        wall_seconds: that it may take.
    """

    kind = "rivals"
    measurements: ClassVar[int] = 4
    wall_seconds: ClassVar[float] = 60.0

    def test_trace(self) -> None:
        """What it found is a curve that rises in time and falls in cost, within its limits."""
        trace = self.make().tune(
            self.given_task(),
            measurements=self.measurements,
            wall_seconds=self.wall_seconds,
            seed=SEED,
        )
        where = self.where
        kind = type(trace).__name__
        require(isinstance(trace, RivalTrace), f"{where}: {kind} instead of a RivalTrace")
        lengths = {len(trace.at_seconds), len(trace.measurements), len(trace.best_seconds)}
        require(
            len(lengths) == 1 and lengths != {0},
            f"{where}: at_seconds, measurements and best_seconds have {sorted(lengths)} points, "
            "not one each for every point",
        )
        times, counts, best = (
            np.asarray(one, float)
            for one in (trace.at_seconds, trace.measurements, trace.best_seconds)
        )
        require((times > 0).all(), f"{where}: a point at or before its start")
        require((np.diff(times) > 0).all(), f"{where}: its points do not rise in time")
        require((np.diff(counts) >= 0).all(), f"{where}: it takes measurements back")
        require(
            counts[-1] <= self.measurements,
            f"{where}: {counts[-1]:.0f} measurements, not the {self.measurements} it may make",
        )
        require((np.diff(best) <= 0).all(), f"{where}: its best time grows")
        require((best > 0).all(), f"{where}: its best time is not positive")
        require(0 <= trace.failed <= counts[-1], f"{where}: more failures than measurements")
        final = trace.final_seconds
        require(
            final is None or (math.isfinite(final) and final > 0),
            f"{where}: its final time is {final}; None says that there is none",
        )
        try:
            json.dumps(dict(trace.details), allow_nan=False)
        except (TypeError, ValueError) as error:
            require(condition=False, sentence=f"{where}: its details are no JSON: {error}")
