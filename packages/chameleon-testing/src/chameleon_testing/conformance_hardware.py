"""What everything that touches code and hardware must do: spaces, runners, baselines.

As in :mod:`chameleon_testing.conformance`, each check takes a factory and raises
``ConformanceError`` with a sentence where a contract is broken.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import attrs
import numpy as np
from chameleon_core.measurement import Measurement
from chameleon_core.stages import (
    Arrays,
    Baseline,
    Builder,
    Kernel,
    MeasureJob,
    Runner,
    SpaceProvider,
)
from chameleon_core.task import Task

from chameleon_testing.conformance import ConformanceError, require
from chameleon_testing.conformance_cases import SEED

_SAMPLE = 64
"""Configurations that are looked at."""


def check_space_provider(make: Callable[[], SpaceProvider], task: Task) -> None:
    """Check a space provider's design space of one task; builds nothing.

    Args:
        make: makes the provider.
        task: a task that it supports.
    """
    where = f"space of task '{task.name}'"
    space, again = make().design_space(task), make().design_space(task)
    require(space.fingerprint == again.fingerprint, f"{where}: two spaces of one task differ")
    require(
        np.array_equal(space.first_guesses, again.first_guesses),
        f"{where}: its first guesses differ",
    )
    configs = space.sample(_SAMPLE, np.random.default_rng(SEED))
    same = again.sample(_SAMPLE, np.random.default_rng(SEED))
    require(np.array_equal(configs, same), f"{where}: two samples of one seed differ")
    require(len(configs), f"{where}: nothing in it is legal")
    features = space.features(configs)
    require(features.shape[1] == len(space.feature_names), f"{where}: features without names")
    require(np.isfinite(features).all(), f"{where}: a feature is not finite")
    for config in configs.tolist():
        _require_json(space.decode(config), f"{where}: a knob's value is no JSON")


def check_runner(make: Callable[[], Runner], job: MeasureJob) -> list[Measurement]:
    """Check a runner on a job that may hold bad candidates, and its stream if it has its own.

    Args:
        make: makes the runner.
        job: what to measure; its configurations are distinct.

    Returns:
        The measurements, in the order in which they arrived.
    """
    with make() as runner:
        measurements = list(runner.measure(job))
        again = list(runner.measure(job))
        streamed = check_stream(runner, job)
        described = runner.describe()
        require(described, "runner: says nothing about what measures")
        _require_json(described, "runner: what it says about what measures is no JSON")
        runner.close()
    wanted = Counter(tuple(config) for config in job.configs)
    for round_ in (measurements, again, *streamed):
        found = Counter(measurement.config for measurement in round_)
        require(found == wanted, "runner: not exactly one measurement per configuration")
    for measurement in measurements:
        require(
            measurement.ok or measurement.message,
            f"runner: the failure of {measurement.config} has no message",
        )
        require(
            all(np.isfinite(s) and s > 0 for s in measurement.seconds),
            f"runner: {measurement.config} has times that are not positive",
        )
    return measurements


def check_stream(runner: Runner, job: MeasureJob) -> list[list[Measurement]]:
    """Check how a runner measures two jobs side by side, if it has a way of its own.

    Args:
        runner: entered.
        job: what to measure, twice.

    Returns:
        The measurements of each job; empty where the runner has no way of its own.
    """
    if type(runner).stream is Runner.stream:
        return []
    require(runner.lanes >= 0, f"runner: has {runner.lanes} lanes")
    jobs = [job, attrs.evolve(job)]
    found: dict[MeasureJob, list[Measurement]] = {one: [] for one in jobs}
    with runner.stream() as stream:
        require(not stream.busy, "stream: busy before it has a job")
        stream.wake()
        stream.submit(jobs[0])
        require(stream.busy, "stream: not busy although it has a job")
        stream.poll(timeout=0.0)
    with runner.stream() as stream:
        stream.submit(jobs[0])
        stream.submit(jobs[1])
        while stream.busy:
            arrival = stream.poll()
            require(arrival or not stream.busy, "stream: nobody woke it, yet it came with nothing")
            if arrival is not None:
                require(arrival.job in found, "stream: a measurement of a job that nobody gave it")
                found[arrival.job].append(arrival.measurement)
        require(stream.poll() is None, "stream: a measurement after the last one")
        stream.close()
    return list(found.values())


def check_baseline(make: Callable[[], Baseline], task: Task) -> None:
    """Check every variant of a baseline on one task, in this process.

    Args:
        make: makes the baseline.
        task: a task that it supports.
    """
    baseline = make()
    require(baseline.supports(task), f"baseline: does not support task '{task.name}'")
    variants = baseline.variants(task)
    require(variants, f"baseline: has no way to compute task '{task.name}'")
    require(len(set(variants)) == len(variants), "baseline: two variants have one name")
    for variant in variants:
        builder = baseline.builder(task, variant, threads=1)
        check_kernel(builder, builder.build(()), where=f"baseline variant '{variant}'")


def check_kernel(builder: Builder, kernel: Kernel, *, where: str) -> None:
    """Check a kernel's outputs against its builder's reference, and its clock.

    Args:
        builder: has a reference.
        kernel: built by it.
        where: said first in the sentence of a failure.
    """
    expected, tolerance = builder.reference()
    require_close(kernel.outputs(), expected, tolerance, where)
    for cold_bytes in (0, 1 << 20):
        require(kernel.time(2, cold_bytes=cold_bytes) > 0, f"{where}: takes no time")
        for count in (1, 3):
            repeats = kernel.repeats(2, count, cold_bytes=cold_bytes)
            require(len(repeats) == count, f"{where}: {len(repeats)} repeats, not {count}")
            require(min(repeats) > 0, f"{where}: a repeat takes no time")
    # Timing must leave the kernel as it was.
    require_close(kernel.outputs(), expected, tolerance, f"{where}, after it was timed")


def require_close(got: Arrays, expected: Arrays, tolerance: float, where: str) -> None:
    """Require outputs that agree with a reference.

    Args:
        got: the outputs.
        expected: the reference's.
        tolerance: the largest accepted difference over the largest magnitude of an output.
        where: said first in the sentence of a failure.

    Raises:
        ConformanceError: they do not agree, or are of another number or shape.
    """
    require(len(got) == len(expected), f"{where}: {len(got)} outputs, not {len(expected)}")
    for one, other in zip(got, expected, strict=True):
        require(one.shape == other.shape, f"{where}: shape {one.shape}, not {other.shape}")
        # Differences of unsigned numbers would wrap around.
        ours, wanted = one.astype(np.float64), other.astype(np.float64)
        scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
        error = float(np.abs(ours - wanted).max(initial=0.0)) / scale
        require(
            error <= tolerance,
            f"{where}: outputs differ by {error:.2g} of the largest, more than {tolerance:.2g}",
        )


def _require_json(value: object, sentence: str) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConformanceError(f"{sentence}: {error}") from error
