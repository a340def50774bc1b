"""The contracts of spaces, runners and baselines, which touch code and hardware.

As in :mod:`chameleon_testing.conformance`, each check takes a factory and asserts a contract.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from chameleon_core import stages
from chameleon_core.measurement import Measurement
from chameleon_core.stages import Arrays, MeasureJob
from chameleon_core.task import Task

from chameleon_testing.generators import SEED

_SAMPLE = 64
"""Configurations that are looked at."""


def after_json(value: object, name: str) -> Any:
    """A value, written as JSON and read again.

    Args:
        value: anything that must be JSON.
        name: the value's name in a sentence.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{name} is no JSON: {error}") from error


def check_space_provider(make: Callable[[], stages.SpaceProvider], task: Task) -> None:
    """Check a space provider's design space of one task; builds nothing.

    Args:
        make: makes the provider.
        task: a task that it supports.
    """
    where = f"space of task '{task.name}'"
    space, again = make().design_space(task), make().design_space(task)
    assert space.fingerprint == again.fingerprint, f"{where}: two spaces of one task differ"
    same = np.array_equal(space.first_guesses, again.first_guesses)
    assert same, f"{where}: its first guesses differ"
    configs, others = (one.sample(_SAMPLE, np.random.default_rng(SEED)) for one in (space, again))
    assert np.array_equal(configs, others), f"{where}: two samples of one seed differ"
    assert len(configs), f"{where}: nothing in it is legal"
    features = space.features(configs)
    assert features.shape[1] == len(space.feature_names), f"{where}: features without names"
    assert np.isfinite(features).all(), f"{where}: a feature is not finite"
    for config in configs.tolist():
        after_json(space.decode(config), f"{where}: a knob's value")


def check_runner(make: Callable[[], stages.Runner], job: MeasureJob) -> list[Measurement]:
    """Check a runner on a job that may hold bad candidates, and its stream if it has its own.

    Args:
        make: makes the runner.
        job: what to measure; its configurations are distinct.

    Returns:
        The measurements, in the order in which they arrived.
    """
    with make() as runner:
        measurements, again = (list(runner.measure(job)) for _ in range(2))
        streamed = check_stream(runner, job)
        described = runner.describe()
        assert described, "runner: says nothing about what measures"
        after_json(described, "runner: what it says about what measures")
        runner.close()
    wanted = Counter(tuple(config) for config in job.configs)
    for round_ in (measurements, again, *streamed):
        found = Counter(measurement.config for measurement in round_)
        assert found == wanted, "runner: not exactly one measurement per configuration"
    for one in measurements:
        assert one.ok or one.message, f"runner: the failure of {one.config} has no message"
        positive = all(np.isfinite(seconds) and seconds > 0 for seconds in one.seconds)
        assert positive, f"runner: {one.config} has times that are not positive"
    return measurements


def check_stream(runner: stages.Runner, job: MeasureJob) -> list[list[Measurement]]:
    """Check how a runner measures two jobs side by side, if it has a way of its own.

    Args:
        runner: entered.
        job: what to measure, twice.

    Returns:
        The measurements of each job; empty if the runner has no way of its own.
    """
    if type(runner).stream is stages.Runner.stream:
        return []
    assert runner.lanes >= 0, f"runner: has {runner.lanes} lanes"
    found: dict[MeasureJob, list[Measurement]] = {job: [], attrs.evolve(job): []}
    with runner.stream() as stream:
        early = stream.busy
        assert not early, "stream: busy before it has a job"
        stream.wake()
        stream.submit(job)
        assert stream.busy, "stream: not busy although it has a job"
        stream.poll(timeout=0.0)
    with runner.stream() as stream:
        for one in found:
            stream.submit(one)
        while stream.busy:
            arrival = stream.poll()
            assert arrival or not stream.busy, "stream: nobody woke it, yet it came with nothing"
            if arrival is not None:
                assert arrival.job in found, "stream: a measurement of a job that nobody gave it"
                found[arrival.job].append(arrival.measurement)
        assert stream.poll() is None, "stream: a measurement after the last one"
        stream.close()
    return list(found.values())


def check_baseline(make: Callable[[], stages.Baseline], task: Task) -> None:
    """Check every variant of a baseline on one task, in this process.

    Args:
        make: makes the baseline.
        task: a task that it supports.
    """
    baseline = make()
    assert baseline.supports(task), f"baseline: does not support task '{task.name}'"
    variants = baseline.variants(task)
    assert variants, f"baseline: has no way to compute task '{task.name}'"
    assert len(set(variants)) == len(variants), "baseline: two variants have one name"
    for variant in variants:
        builder = baseline.builder(task, variant, threads=1)
        check_kernel(builder, builder.build(()), where=f"baseline variant '{variant}'")


def check_kernel(builder: stages.Builder, kernel: stages.Kernel, *, where: str) -> None:
    """Check a kernel's outputs against its builder's reference, and its clock.

    Args:
        builder: has a reference.
        kernel: built by it.
        where: said first in the sentence of a failure.
    """
    expected, tolerance = builder.reference()
    require_close(kernel.outputs(), expected, tolerance, where)
    for cold_bytes in (0, 1 << 20):
        assert kernel.time(2, cold_bytes=cold_bytes) > 0, f"{where}: takes no time"
        for count in (1, 3):
            repeats = kernel.repeats(2, count, cold_bytes=cold_bytes)
            assert len(repeats) == count, f"{where}: {len(repeats)} repeats, not {count}"
            assert min(repeats) > 0, f"{where}: a repeat takes no time"
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
        AssertionError: they do not agree, or are of another number or shape.
    """
    assert len(got) == len(expected), f"{where}: {len(got)} outputs, not {len(expected)}"
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape, f"{where}: shape {one.shape}, not {other.shape}"
        # Differences of unsigned numbers would wrap around.
        ours, wanted = one.astype(np.float64), other.astype(np.float64)
        scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
        error = float(np.abs(ours - wanted).max(initial=0.0)) / scale
        assert error <= tolerance, (
            f"{where}: outputs differ by {error:.2g} of the largest, more than {tolerance:.2g}"
        )
