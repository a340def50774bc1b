"""Stages that break their contracts are named, and cost nothing but the run."""

import pytest
from chameleon_core._errors import ConfigError, PluginError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import Measurement
from chameleon_core._schedulers import Scheduler
from chameleon_core._task import Task
from chameleon_core.plugin_api import Baseline, Frontend, SpaceProvider
from synthetic import SyntheticRunner


def options_of(resolved):
    return type(resolved.runner.options)


class Forgetful(SyntheticRunner):
    def measure(self, job):
        yield from list(super().measure(job))[1:]


class Inventive(SyntheticRunner):
    def measure(self, job):
        for m in super().measure(job):
            yield Measurement(config=(*m.config, 0), seconds=m.seconds)


class Repetitive(SyntheticRunner):
    def measure(self, job):
        for m in super().measure(job):
            yield m
            yield m


class Nan(SyntheticRunner):
    def measure(self, job):
        for m in super().measure(job):
            yield Measurement(config=m.config, seconds=(float("nan"),))


class Raising(SyntheticRunner):
    def measure(self, job):
        raise OSError("no such board")


class Short(SyntheticRunner):
    def compare(self, task, contenders):
        return super().compare(task, contenders)[1:]


@pytest.mark.parametrize(
    ("runner", "says"),
    [
        (Forgetful, "left out 1 of 4"),
        (Inventive, "was not asked for"),
        (Repetitive, "or a second one"),
        (Nan, "yielded the times"),
        (Raising, "to measure task 'op0': OSError: no such board"),
        (Short, "compared 7 programs and returned 6"),
    ],
)
def test_a_runner_that_breaks_its_contract_is_named(pipeline, plugin, runner, says):
    options = options_of(pipeline())
    resolved = pipeline(plugins=[plugin("runners", runner, options)], runner={"name": "odd"})
    with pytest.raises(PluginError, match=f"runner 'odd' .*{says}"):
        run_pipeline(resolved)


class Stuck(Scheduler):
    def __init__(self, options, context):
        pass

    def next_task(self, states):
        return 7


class NoBaseline(Baseline):
    def __init__(self, options):
        pass

    def supports(self, task):
        raise ImportError("libdnn")

    def variants(self, task):
        return ()

    def builder(self, task, variant, *, threads):
        raise NotImplementedError


class NoSpace(SpaceProvider):
    def __init__(self, options):
        pass

    def design_space(self, task):
        return {"tile": 3}

    def builder(self, task, *, threads):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("kind", "factory", "says"),
    [
        ("scheduler", Stuck, "scheduler 'odd' chose task 7"),
        ("space", NoSpace, "space 'odd' returned a dict"),
    ],
)
def test_a_stage_that_breaks_its_contract_is_named(pipeline, plugin, kind, factory, says):
    resolved = pipeline(plugins=[plugin(f"{kind}s", factory)], **{kind: "odd"})
    with pytest.raises(PluginError, match=says):
        run_pipeline(resolved)


def test_a_broken_baseline_shows_before_anything_is_measured(pipeline, plugin, log_lines):
    resolved = pipeline(plugins=[plugin("baselines", NoBaseline)], baselines=["odd"])
    with pytest.raises(PluginError, match=r"baseline 'odd' failed.*libdnn"):
        run_pipeline(resolved)
    assert log_lines() == []


class Twins(Frontend):
    def __init__(self, options):
        pass

    def tasks(self, target):
        arguments = {"cardinalities": [3]}
        return [
            Task(name=name, operator="synthetic", arguments=arguments, target=target, flop=1.0)
            for name in ("one", "two")
        ]


class Empty(Twins):
    def tasks(self, target):
        return []


@pytest.mark.parametrize(("frontend", "says"), [(Twins, "same work"), (Empty, "no operator")])
def test_a_model_that_makes_no_sense(pipeline, plugin, frontend, says):
    resolved = pipeline(plugins=[plugin("frontends", frontend)], model={"odd": {}})
    with pytest.raises(ConfigError, match=says):
        run_pipeline(resolved)
