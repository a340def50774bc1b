"""Checks of the contracts of stages, which a plugin's own tests can call.

Each check takes a factory, and raises an assertion error with a message if the plugin breaks its
contract. Checks of search stages make the stage on ordinary, extreme and degenerate design spaces.
Checks of spaces, runners and baselines run code on the hardware::

    from chameleon_testing.conformance import check_explorer

    def test_conformance():
        check_explorer(lambda context: MyExplorer(MyOptions(), context))

:mod:`chameleon_testing.suites` has the same checks as classes, from which tests can derive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import (
    Arrays,
    Candidates,
    Configs,
    DesignSpace,
    MeasureJob,
    Measurement,
    Observations,
    Scores,
    StageContext,
    Task,
    Visited,
)
from numpy.typing import NDArray

from chameleon_testing._conformance_cases import context_of, observe, quality, spaces
from chameleon_testing._generators import SEED, check_seeds, trial

_COUNT = 8
"""Number of configurations that a stage is asked for at a time."""

_ROUNDS = 4
"""Number of rounds in a small tuning run."""


def check_explorer(make: Callable[[StageContext], stages.Explorer], *, draws: bool = True) -> None:
    """Check an explorer in small tuning runs, with and without a cost model.

    Two runs with the same seed must propose the same, and another seed must lead to other
    proposals. All random numbers must come from the generator of the context.

    Args:
        make: a function that makes the explorer from its context.
        draws: whether the explorer draws random numbers. False for an explorer whose proposals are
            the same for every seed.
    """
    once, other = _tried("explorer", make, _explore, lambda _: {"guided": True, "unguided": False})
    assert not draws or not np.array_equal(once, other), (
        "explorer: two seeds give the same proposals, so that it draws from a generator of its own "
        "or from none; draw from context.rng, or check it as one that draws nothing (draws = False "
        "in its suite, --no-draws)"
    )


def check_sampler(make: Callable[[StageContext], stages.Sampler]) -> None:
    """Check that a sampler is deterministic, and handles few or repeated candidates.

    A sampler may choose a row that is illegal, repeated or visited, because the synthesizer may
    replace it. But if there are unvisited candidates, at least one chosen row must be usable.

    Args:
        make: a function that makes the sampler from its context.
    """
    _tried("sampler", make, _select, lambda space: {f"{n}": _plan(space, n) for n in (0, 3, 64)})


def check_synthesizer(make: Callable[[StageContext], stages.Synthesizer]) -> None:
    """Check a synthesizer: its batches are legal, distinct and deterministic.

    The synthesizer gets batches in which some configurations were measured before.

    Args:
        make: a function that makes the synthesizer from its context.
    """
    _tried("synthesizer", make, _refine, lambda space: {"64": _plan(space, 64)})


def check_cost_model(make: Callable[[StageContext], stages.CostModel]) -> None:
    """Check a cost model: shapes, finite scores, determinism, and what it learns.

    The model must also accept failures and few observations. The score of a configuration must not
    depend on the other configurations in the call. ``select_batch`` must return distinct rows. The
    model must learn a simple space from 200 observations.

    Args:
        make: a function that makes the cost model from its context.
    """
    _tried("cost model", make, _predict, _observations)
    with trial("cost model"):
        _check_learning(make)


def _tried(
    noun: str,
    make: Callable[[StageContext], Any],
    use: Callable[..., NDArray[Any]],
    cases: Callable[[DesignSpace], Mapping[str, Any]],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Use a stage in every space twice with one seed, and in the last space with two seeds."""
    for name, space in spaces().items():
        for label, case in cases(space).items():
            fields = attrs.asdict(case, recurse=False) if attrs.has(type(case)) else {}
            arrays = {key: value for key, value in fields.items() if isinstance(value, np.ndarray)}
            with trial(f"{noun} on the space '{name}', {label}", **arrays):
                once, again = (use(make(context_of(space)), space, case) for _ in range(2))
                assert np.array_equal(once, again), "two runs of one seed differ"
    with trial(noun):
        return check_seeds(
            make(context_of(space)),
            lambda seed: use(make(context_of(space, seed=seed)), space, case),
        )


def _require_rows(space: DesignSpace, configs: Configs, count: int) -> None:
    """Require an array of at most ``count`` rows of knob indices in range."""
    assert isinstance(configs, np.ndarray), "configurations are not an array"
    shape = (len(configs), len(space.knobs))
    assert configs.shape == shape, f"shape {configs.shape} instead of {shape}"
    assert configs.dtype.kind == "i", f"dtype {configs.dtype} instead of integers"
    assert len(configs) <= count, f"{len(configs)} configurations instead of {count}"
    in_range = ((configs >= 0) & (configs < space.cardinalities)).all()
    assert in_range, "an index that names no choice"


def _require_batch(space: DesignSpace, configs: Configs, visited: Visited, count: int) -> None:
    """Require distinct, legal, unvisited configurations, at most ``count`` of them."""
    _require_rows(space, configs, count)
    assert space.legal(configs).all(), "an illegal configuration"
    assert len(space.distinct(configs)) == len(configs), "a configuration twice"
    assert visited.unvisited(configs).all(), "a configuration that was visited"


def _explore(explorer: stages.Explorer, space: DesignSpace, guided: bool) -> Configs:
    """Make a small tuning run that measures all proposals; return the measured configurations."""
    visited, seen = Visited(space), np.empty((0, len(space.knobs)), np.int32)
    possible = len(space.sample(2 * _COUNT * _ROUNDS, np.random.default_rng(0)))
    for _ in range(_ROUNDS):
        score = (lambda configs: quality(space, configs)) if guided else None
        proposed, before = explorer.explore(score, visited, _COUNT), len(seen)
        assert isinstance(proposed, Candidates), f"{type(proposed).__name__} instead of Candidates"
        assert len(visited) == before, "it marks configurations as visited itself"
        _require_batch(space, proposed.configs, visited, _COUNT)
        assert proposed.scores.shape == (len(proposed.configs),), "not one score per candidate"
        assert np.isfinite(proposed.scores).all(), "a score is not finite"
        assert (np.diff(proposed.scores) <= 0).all(), "candidates are not best first"
        assert before >= possible or len(proposed.configs), "nothing found although there is more"
        visited.add(proposed.configs)
        seen = np.concatenate([seen, proposed.configs])
        # Every third configuration fails, so that the explorer also learns from failures.
        observed = observe(space, seen, failing=np.arange(len(seen)) % 3 == 0)
        with trial(configs=observed.configs, costs=observed.costs):
            explorer.observe(observed)
    return seen


@attrs.frozen(kw_only=True)
class _Plan(Candidates):
    """Candidates, best first, of which every second one was visited."""

    visited: Visited


def _plan(space: DesignSpace, size: int) -> _Plan:
    configs = space.sample(size, np.random.default_rng(SEED))
    scores = quality(space, configs)
    order = np.argsort(-scores, kind="stable")
    visited = Visited(space)
    visited.add(configs[order[::2]])
    return _Plan(configs=configs[order], scores=scores[order], visited=visited)


def _select(sampler: stages.Sampler, space: DesignSpace, plan: _Plan) -> Configs:
    """The rows that a sampler chooses from a plan, after checks."""
    chosen = sampler.select(plan, plan.visited, _COUNT)
    _require_rows(space, chosen, _COUNT)
    fresh = int(plan.visited.unvisited(plan.configs).sum())
    usable = (space.legal(chosen) & plan.visited.unvisited(chosen)).any()
    assert fresh == 0 or usable, f"nothing chosen from {fresh} candidates"
    return chosen


def _refine(synthesizer: stages.Synthesizer, space: DesignSpace, plan: _Plan) -> Configs:
    """The batch that a synthesizer returns for a batch of which half was visited, after checks."""
    batch = plan.configs[: 2 * _COUNT].copy()
    with trial(batch=batch):
        synthesizer.observe(observe(space, batch, failing=np.arange(len(batch)) % 2 == 0))
        refined = synthesizer.refine(batch, plan, plan.visited)
    _require_batch(space, refined, plan.visited, len(batch))
    return refined


def _observations(space: DesignSpace) -> dict[str, Observations]:
    configs = space.sample(64, np.random.default_rng(SEED))
    number = np.arange(len(configs))
    whole = observe(space, configs)
    nan, zero = (np.where(number == 0, first, whole.costs) for first in (np.nan, 0.0))
    return {
        "nothing measured": observe(space, configs[:0]),
        "one measured": observe(space, configs[:1]),
        "all failed": observe(space, configs, failing=number >= 0),
        "half failed": observe(space, configs, failing=number % 2 == 1),
        "a cost that is no number": attrs.evolve(whole, costs=nan),
        "a cost of zero": attrs.evolve(whole, costs=zero),
        "all measured": whole,
    }


def _predict(model: stages.CostModel, _: DesignSpace, observations: Observations) -> Scores:
    """The scores of a model for the observations that it has learnt from, after checks."""
    early = model.trained
    assert not early, "trained before it saw anything"
    model.fit(observations)
    if not model.trained:
        return np.zeros(0)
    scores, count = model.predict(observations.configs), len(observations)
    assert isinstance(scores, np.ndarray), "scores are not an array"
    assert scores.shape == (count,), "not one score per configuration"
    assert np.isfinite(scores).all(), "a score is not finite"
    assert len(model.predict(observations.configs[:0])) == 0, "scores out of nothing"
    together = model.select_batch(observations.configs, _COUNT)
    rows = np.asarray([] if together is None else together)
    assert len(rows) <= _COUNT, "more rows to measure together than asked for"
    assert len(np.unique(rows)) == len(rows), "a row to measure together twice"
    assert ((rows >= 0) & (rows < count)).all(), "a row to measure together that is none"
    return scores


def _check_learning(make: Callable[[StageContext], stages.CostModel]) -> None:
    """Require that a model that learned half of a simple space orders the rest well."""
    space = spaces()["tiled"]
    configs = space.sample(400, np.random.default_rng(SEED))
    model = make(context_of(space))
    model.fit(observe(space, configs[:200]))
    assert model.trained, "not trained by 200 different observations"
    predicted, truth = model.predict(configs[200:]), quality(space, configs[200:])
    ranks = [np.argsort(np.argsort(values)) for values in (predicted, truth)]
    correlation = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    sentence = f"rank correlation {correlation:.2f} on configurations it has not seen"
    assert correlation > 0.3, sentence  # noqa: PLR2004 - chance gives about 0, a model usually far more
    alone = np.allclose(model.predict(configs[200:210]), predicted[:10], rtol=1e-5, atol=1e-5)
    assert alone, "a score depends on what else is asked about"


_SAMPLE = 64
"""Number of configurations to check."""


def after_json(value: object, name: str) -> Any:
    """Write a value as JSON and read it again, as a worker process would get it.

    Args:
        value: the value, which must be possible in JSON.
        name: a name of the value for failure messages.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{name} is no JSON: {error}") from error


def check_space_provider(make: Callable[[], stages.SpaceProvider], task: Task) -> None:
    """Check the design space that a provider makes for one task; nothing is built.

    Args:
        make: a function that makes the provider.
        task: a task that the provider supports.
    """
    where = f"space of task '{task.name}'"
    space, again = make().design_space(task), make().design_space(task)
    assert space.fingerprint == again.fingerprint, f"{where}: two spaces of one task differ"
    same = np.array_equal(space.first_guesses, again.first_guesses)
    assert same, f"{where}: its first guesses differ"
    configs, others = (each.sample(_SAMPLE, np.random.default_rng(SEED)) for each in (space, again))
    assert np.array_equal(configs, others), f"{where}: two samples of one seed differ"
    assert len(configs), f"{where}: nothing in it is legal"
    features = space.features(configs)
    assert features.shape[1] == len(space.feature_names), f"{where}: features without names"
    assert np.isfinite(features).all(), f"{where}: a feature is not finite"
    for config in configs.tolist():
        after_json(space.decode(config), f"{where}: a knob's value")


def check_runner(make: Callable[[], stages.Runner], job: MeasureJob) -> list[Measurement]:
    """Check a runner on a job, and its stream if it has one of its own.

    Args:
        make: a function that makes the runner.
        job: the job to measure. Its configurations are distinct, and some may fail.

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
        got = Counter(measurement.config for measurement in round_)
        assert got == wanted, "runner: not exactly one measurement per configuration"
    for result in measurements:
        assert result.ok or result.message, f"runner: the failure of {result.config} has no message"
        positive = all(np.isfinite(seconds) and seconds > 0 for seconds in result.seconds)
        assert positive, f"runner: {result.config} has times that are not positive"
    return measurements


def check_stream(runner: stages.Runner, job: MeasureJob) -> list[list[Measurement]]:
    """Check how a runner measures two jobs side by side, if it has its own method ``stream``.

    Args:
        runner: the runner, whose context the caller has entered.
        job: the job, which is measured twice.

    Returns:
        The measurements of each job; empty if the runner has no ``stream`` of its own.
    """
    if type(runner).stream is stages.Runner.stream:
        return []
    assert runner.lanes >= 0, f"runner: has {runner.lanes} lanes"
    arrived: dict[MeasureJob, list[Measurement]] = {job: [], attrs.evolve(job): []}
    with runner.stream() as stream:
        early = stream.busy
        assert not early, "stream: busy before it has a job"
        stream.wake()
        stream.submit(job)
        assert stream.busy, "stream: not busy although it has a job"
        stream.poll(timeout=0.0)
    with runner.stream() as stream:
        for submitted in arrived:
            stream.submit(submitted)
        while stream.busy:
            arrival = stream.poll()
            assert arrival or not stream.busy, "stream: nobody woke it, yet it came with nothing"
            if arrival is not None:
                assert arrival.job in arrived, "stream: a measurement of a job that nobody gave it"
                arrived[arrival.job].append(arrival.measurement)
        assert stream.poll() is None, "stream: a measurement after the last one"
        stream.close()
    return list(arrived.values())


def check_baseline(make: Callable[[], stages.Baseline], task: Task) -> None:
    """Check every variant of a baseline on one task, in this process.

    Args:
        make: a function that makes the baseline.
        task: a task that the baseline supports.
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
    """Check a kernel's outputs against its builder's reference, and check the kernel's times.

    Args:
        builder: a builder that has a reference.
        kernel: a kernel that the builder made.
        where: a description of the kernel, with which failure messages begin.
    """
    expected, tolerance = builder.reference()
    require_close(kernel.outputs(), expected, tolerance, where)
    for cold_bytes in (0, 1 << 20):
        assert kernel.time(2, cold_bytes=cold_bytes) > 0, f"{where}: takes no time"
        for count in (1, 3):
            repeats = kernel.repeats(2, count, cold_bytes=cold_bytes)
            assert len(repeats) == count, f"{where}: {len(repeats)} repeats, not {count}"
            assert min(repeats) > 0, f"{where}: a repeat takes no time"
    # Timing must not change the kernel's outputs.
    require_close(kernel.outputs(), expected, tolerance, f"{where}, after it was timed")


def require_close(got: Arrays, expected: Arrays, tolerance: float, where: str) -> None:
    """Require that outputs agree with a reference.

    Args:
        got: the outputs to check.
        expected: the outputs of the reference.
        tolerance: the largest allowed difference, divided by the largest magnitude of the
            reference's output.
        where: a description of the outputs, with which failure messages begin.

    Raises:
        AssertionError: the outputs do not agree, or their number or shapes differ.
    """
    assert len(got) == len(expected), f"{where}: {len(got)} outputs, not {len(expected)}"
    for output, other in zip(got, expected, strict=True):
        assert output.shape == other.shape, f"{where}: shape {output.shape}, not {other.shape}"
        # Differences of unsigned numbers would wrap around.
        ours, wanted = output.astype(np.float64), other.astype(np.float64)
        scale = float(np.abs(wanted).max(initial=0.0)) or 1.0
        error = float(np.abs(ours - wanted).max(initial=0.0)) / scale
        assert error <= tolerance, (
            f"{where}: outputs differ by {error:.2g} of the largest, more than {tolerance:.2g}"
        )
