"""Every kind of plugin has a conformance suite, and a broken plugin of each is found out by it."""

import contextlib
import itertools
import json
import subprocess
import sys
import unittest

import attrs
import click
import numpy as np
import pytest
import synthetic
from chameleon_core import plugin_api as plugins
from chameleon_core._errors import ConfigError, TargetError
from chameleon_core._plugins.kinds import STAGE_KINDS
from chameleon_core._plugins.records import RecordDatabaseRecord
from chameleon_core._schedulers.gradient import RoundRobin
from chameleon_core.api import Registry
from chameleon_testing.suites import (
    BaselineSuite,
    CommandSuite,
    CostModelSuite,
    ExplorerSuite,
    FrontendSuite,
    PresetSuite,
    RecordDatabaseSuite,
    RivalSuite,
    RunnerSuite,
    SamplerSuite,
    SchedulerSuite,
    SpaceSuite,
    StageSuite,
    SynthesizerSuite,
    TargetSuite,
)
from chameleon_testing.suites.base import outcomes
from synthetic import record_of

TASK = synthetic.synthetic_task([4, 5], failing=20)
JOB = plugins.MeasureJob(
    task=TASK,
    space=plugins.StageRef(factory="synthetic:SyntheticSpace"),
    configs=[(i, j) for i in range(4) for j in range(5)],
)


@pytest.mark.parametrize("kind", plugins.KINDS.values(), ids=lambda kind: kind.name)
def test_no_kind_lacks_a_suite(kind):
    # Where the core is tested alone, the suites of others are not there.
    pytest.importorskip(kind.conformance.partition(".")[0])
    suite = plugins.load_factory(kind.conformance)
    assert suite.kind == kind.name
    own = [name for name in dir(suite) if name.startswith("test_")]
    assert set(own) - {name for name in dir(StageSuite) if name.startswith("test_")}


def failures(suite, **attributes):
    return {row.name: row.failure for row in outcomes(suite, attributes) if row.failure is not None}


class TestFakeFrontend(FrontendSuite):
    """The suites are what pytest collects: this is how an author uses one."""

    record = record_of(synthetic.SyntheticFrontend, synthetic.ModelOptions)
    options = {"operators": [[4, 5], [6]]}

    def test_options(self):
        """Of a fake nobody documents the options."""
        with pytest.raises(AssertionError, match="option 'operators' has no help"):
            super().test_options()


class Forgetful(synthetic.SyntheticFrontend):
    def tasks(self, target):
        return [attrs.evolve(task, name="same") for task in super().tasks(target)]


class Worldly(synthetic.SyntheticFrontend):
    def tasks(self, target):
        return [attrs.evolve(task, arguments={"x": np.zeros(1)}) for task in super().tasks(target)]


@pytest.mark.parametrize(
    ("frontend", "words"), [(Forgetful, "two tasks are called 'same'"), (Worldly, "is no JSON")]
)
def test_frontends(frontend, words):
    options = {"operators": [[4, 5], [6]]}
    record = record_of(frontend, synthetic.ModelOptions)
    assert words in failures(FrontendSuite, record=record, options=options)["tasks"]


class Boards(plugins.TargetResolver):
    def __init__(self, options):
        del options

    def resolve(self, text):
        boards = {"pi": "board pi", "native": "board none", "board pi": "board pi"}
        if text not in {*boards, *boards.values()}:
            raise TargetError(f"no board {text!r}", hint="there are pi and native")
        return boards.get(text, text)


class Wavering(Boards):
    def resolve(self, text):
        return f"{text}!"

    def describe(self, target):
        return {"features": ["sse", "avx"]}


class Credulous(Boards):
    def resolve(self, text):
        return text


def test_targets():
    assert failures(TargetSuite, record=record_of(Boards), targets=("pi", "native")) == {}
    result = failures(TargetSuite, record=record_of(Wavering), targets=("pi",))
    assert "there must be one" in result["canonical"]
    assert "not sorted" in result["description"]
    assert "takes 'no-such" in failures(TargetSuite, record=record_of(Credulous))["nonsense"]


class Lawless(synthetic.SyntheticSpace):
    made = itertools.count()

    def design_space(self, task):
        space = super().design_space(task)
        space.first_guesses = np.array([[1, next(self.made) % 5]], np.int32)
        return space


def test_spaces():
    good = record_of(synthetic.SyntheticSpace)
    assert failures(SpaceSuite, record=good, task=TASK, builds=False) == {}
    result = failures(SpaceSuite, record=record_of(Lawless), task=TASK, builds=False)
    assert "first guesses differ" in result["space"]
    assert "never built" in failures(SpaceSuite, record=good, task=TASK)["kernel"]


def test_what_needs_a_task_says_so_without_one():
    result = outcomes(SpaceSuite, {"record": record_of(synthetic.SyntheticSpace)})
    (first, *_) = [row.skipped for row in result if row.skipped]
    assert "it needs a task" in first


class Idle(plugins.Explorer):
    def __init__(self, options, context):
        self.space = context.space

    def explore(self, score, visited, count):
        raise ZeroDivisionError("by nobody")


def test_explorers():
    assert failures(ExplorerSuite, record=record_of(synthetic.SyntheticExplorer)) == {}
    result = failures(ExplorerSuite, record=record_of(Idle))
    assert result == {"proposals": "it raises ZeroDivisionError: by nobody"}


class Constant(plugins.CostModel):
    trained = False

    def __init__(self, options, context):
        pass

    def fit(self, observations):
        self.trained = True

    def predict(self, configs):
        return np.zeros(len(configs) + 1)


def test_cost_models():
    result = failures(CostModelSuite, record=record_of(Constant))
    assert "not one score per configuration" in result["predictions"]


class Greedy(synthetic.SyntheticSampler):
    def select(self, candidates, visited, count):
        return super().select(candidates, visited, count + 1)


def test_samplers():
    assert failures(SamplerSuite, record=record_of(synthetic.SyntheticSampler)) == {}
    result = failures(SamplerSuite, record=record_of(Greedy))
    assert "9 configurations instead of 8" in result["choices"]


class Mending(synthetic.SyntheticSynthesizer):
    def refine(self, batch, candidates, visited):
        return batch[visited.unvisited(batch)]


def test_synthesizers():
    assert failures(SynthesizerSuite, record=record_of(Mending)) == {}
    result = failures(SynthesizerSuite, record=record_of(synthetic.SyntheticSynthesizer))
    assert "a configuration that was visited" in result["batches"]


class Biased(RoundRobin):
    def next_task(self, states):
        return 0


class Hasty(RoundRobin):
    def next_task(self, states):
        return None


def test_schedulers():
    assert failures(SchedulerSuite, record=record_of(RoundRobin)) == {}
    biased = failures(SchedulerSuite, record=record_of(Biased))
    assert "names task 0, which is done" in biased["choices"]
    assert "names task 0, but all are done" in biased["end"]
    assert (
        "before any task had a batch"
        in failures(SchedulerSuite, record=record_of(Hasty))["choices"]
    )


class Silent(synthetic.SyntheticRunner):
    def compare(self, task, contenders):
        return super().compare(task, contenders)[::-1]

    def conditions(self):
        return {"threads": {1}}


def test_runners():
    good = record_of(synthetic.SyntheticReplay, plugins.NoOptions)
    result = failures(RunnerSuite, record=attrs.evolve(good, options=Documented), job=JOB)
    assert result == {}
    result = failures(RunnerSuite, record=record_of(Silent, Documented), job=JOB)
    assert "one per contender, in order" in result["comparison"]
    assert "conditions() is no JSON" in result["conditions"]


@attrs.frozen(kw_only=True)
class Documented:
    delay: float = attrs.field(default=0.0, metadata={"help": "seconds"})
    log: str = attrs.field(default="", metadata={"help": "a file"})
    hold: str = attrs.field(default="", metadata={"help": "a file"})


class Unsure(synthetic.SyntheticBaseline):
    def variants(self, task):
        return ("plain", "plain")


def test_baselines():
    result = failures(BaselineSuite, record=record_of(Unsure), task=TASK)
    assert "two variants have one name" in result["variants"]


class Backward(synthetic.SyntheticRival):
    def tune(self, task, **limits):
        trace = super().tune(task, **limits)
        return attrs.evolve(trace, best_seconds=trace.best_seconds[::-1])


def test_rivals():
    assert failures(RivalSuite, record=record_of(synthetic.SyntheticRival), task=TASK) == {}
    result = failures(RivalSuite, record=record_of(Backward), task=TASK)
    assert "its best time grows" in result["trace"]


class Kept(plugins.RecordDatabase):
    """Keeps everything in a file of JSON lines, which is enough for a test."""

    place = "memory"
    files = {}

    def __init__(self, options):
        self.kept = self.files.setdefault(options.location, {})

    def keys(self, like=None):
        keys = [key for key in self.kept if like is None or key.family == like.family]
        return sorted(keys, key=lambda key: key.digest)

    def records(self, key):
        return list(self.kept.get(key, {}).values())

    def add(self, found):
        changed = 0
        for key, records in found.items():
            own = self.kept.setdefault(key, {})
            for record in records:
                config = record.measurement.config
                if config not in own or self.better(record, own[config]):
                    own[config] = record
                    changed += 1
        return changed

    def better(self, one, other):
        return one.rank < other.rank


class LastWins(Kept):
    files = {}

    def better(self, one, other):
        return True


@attrs.frozen(kw_only=True)
class PlaceOptions:
    location: str = attrs.field(default="", metadata={"help": "where it is"})


def test_record_databases():
    more = {"options": PlaceOptions, "kind": RecordDatabaseRecord, "place_option": "location"}
    assert failures(RecordDatabaseSuite, record=record_of(Kept, **more)) == {}
    result = failures(RecordDatabaseSuite, record=record_of(LastWins, **more))
    assert "the lower rank" in result["order"]


@pytest.mark.usefixtures("everything")
def test_presets():
    good = plugins.PresetRecord(name="odd", summary="odd", pipeline={"explorer": "random"})
    assert failures(PresetSuite, record=good) == {}
    record = plugins.PresetRecord(name="odd", summary="odd", pipeline={"explorer": "nowhere"})
    assert "unknown explorer 'nowhere'" in failures(PresetSuite, record=record)["pipeline"]
    record = plugins.PresetRecord(name="odd", summary="odd", pipeline={"modle": {}, "output": "x"})
    assert "no key 'modle'" in failures(PresetSuite, record=record)["keys"]


@click.command()
def helpful():
    """Say what it does."""


@click.command()
def helpless():
    pass


def function():
    pass


def test_commands():
    def command(name):
        return plugins.CommandRecord(name="odd", summary="odd", factory=f"{__name__}:{name}")

    assert failures(CommandSuite, record=command("helpful")) == {}
    assert "it has no help" in failures(CommandSuite, record=command("helpless"))["help"]
    assert "no click command" in failures(CommandSuite, record=command("function"))["help"]


@attrs.define(kw_only=True)
class Mutable:
    draws: int = attrs.field(default=1, metadata={"help": "draws"})


@attrs.frozen(kw_only=True)
class Untold:
    draws: int = 1


@attrs.frozen(kw_only=True)
class Demanding:
    draws: int = attrs.field(metadata={"help": "draws"})


@attrs.frozen(kw_only=True)
class Unwritable:
    number: complex = attrs.field(default=1j, metadata={"help": "a number"})


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Mutable, "can be changed after a run has begun"),
        (Untold, "option 'draws' has no help"),
        (Unwritable, "its options cannot be"),
    ],
)
def test_options(options, words):
    result = failures(SamplerSuite, record=record_of(synthetic.SyntheticSampler, options))
    assert words in result["options"]


@pytest.mark.full
def test_an_option_without_a_default_has_to_be_given():
    record = record_of(synthetic.SyntheticSampler, Demanding)
    skipped = [row.skipped for row in outcomes(SamplerSuite, {"record": record}) if row.skipped]
    assert "'draws' has no default" in skipped[0]
    assert failures(SamplerSuite, record=record, options={"draws": 2}) == {}
    wrong = failures(SamplerSuite, record=record, options={"draws": "two"})
    assert "its options cannot be made" in wrong["options"]


def test_a_record_that_cannot_be_registered_is_told_so():
    result = failures(SamplerSuite, record=record_of(synthetic.SyntheticSampler, dict))
    assert "must be an attrs class" in result["record"]
    assert "set its attribute 'record'" in failures(SamplerSuite)["record"]


def test_options_whose_module_imports_a_library_are_told_so(tmp_path, monkeypatch):
    pytest.importorskip("scipy")
    (tmp_path / "slow_options.py").write_text(
        "import attrs, scipy\n@attrs.frozen(kw_only=True)\nclass Options:\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    options = plugins.load_factory("slow_options:Options")
    result = failures(SamplerSuite, record=record_of(synthetic.SyntheticSampler, options))
    assert "importing slow_options imports scipy" in result["light_import"]


def test_a_failure_of_the_plugin_s_own_keeps_its_hint():
    result = failures(SpaceSuite, record=record_of(Refusing), task=TASK, builds=False)
    assert result["space"] == "no such space; take another one"
    assert json.dumps(result)


class Refusing(synthetic.SyntheticSpace):
    def __init__(self, options):
        raise ConfigError("no such space", hint="Take another one.")


@pytest.mark.parametrize("kind", STAGE_KINDS)
def test_the_options_of_our_own_stages_conform(kind):
    for entry in Registry.default().entries(kind):
        attributes = {"kind": kind, "record": entry.record}
        suite = type("Options", (StageSuite,), attributes)()
        suite.test_record()
        with contextlib.suppress(unittest.SkipTest):  # what has no default is the pipeline's to say
            suite.test_options()


def test_nothing_is_checked_where_python_leaves_assertions_out():
    code = (
        "from chameleon_testing.suites import SamplerSuite; "
        "from chameleon_testing.suites.base import outcomes; list(outcomes(SamplerSuite, {}))"
    )
    words = [sys.executable, "-O", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "`python -O` leaves out" in done.stderr
