"""Every measured configuration says what put it into its batch; random search is never silent."""

import json
from collections import Counter

import numpy as np
import pytest
from chameleon_cli._status import command as status_command
from chameleon_core._loop.end.result import OperatorResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Candidates, Explorer, Sampler, Synthesizer
from click.testing import CliRunner
from structlog.testing import capture_logs
from synthetic import SyntheticExplorer

WARNING = "random_configurations_measured"


class Illegal(Explorer):
    """Proposes what no space has."""

    def __init__(self, _options, context):
        self._width = len(context.space.knobs)

    def explore(self, score, visited, count):
        return Candidates(
            configs=np.full((count, self._width), 10_000), scores=np.zeros(count), steps=1
        )


class Repeating(SyntheticExplorer):
    """Proposes one configuration for ever."""

    def explore(self, score, visited, count):
        return Candidates(configs=np.repeat(self._best[:1], count, axis=0), scores=np.zeros(count))


class Empty(Repeating):
    """Proposes nothing."""

    def explore(self, score, visited, count):
        return Candidates(configs=self._best[:0], scores=np.zeros(0))


class Own(Sampler):
    """Takes one configuration that is no candidate, and candidates."""

    def __init__(self, _options, context):
        self._space, self._rng = context.space, context.rng

    def select(self, candidates, visited, count):
        everything = visited.sample(self._space.size, self._rng)
        proposed = set(map(tuple, candidates.configs.tolist()))
        own = [row for row in everything.tolist() if tuple(row) not in proposed][:1]
        return np.array([*own, *candidates.configs[: count - 1].tolist()])


class Swapping(Synthesizer):
    """Puts another configuration in the place of the last."""

    def __init__(self, _options, context):
        self._space, self._rng = context.space, context.rng

    def refine(self, batch, candidates, visited):
        members = set(map(tuple, batch.tolist()))
        other = next(
            row
            for row in visited.sample(self._space.size, self._rng).tolist()
            if tuple(row) not in members
        )
        return np.array([*batch[:-1].tolist(), other])


@pytest.fixture
def run(pipeline, plugin):
    def made(kind="explorers", stage=None, **more):
        keys = {"explorers": "explorer", "samplers": "sampler", "synthesizers": "synthesizer"}
        chosen = {} if stage is None else {keys[kind]: "odd"}
        plugins = [] if stage is None else [plugin(kind, stage)]
        more = {"operators": [[9, 9], [8, 8]], "baselines": [], **chosen, **more}
        return run_pipeline(pipeline(plugins=plugins, **more))

    return made


def origins(folder):
    with RecordStore.of_run(folder) as store:
        return [Counter(store.origins(stored.id)) for stored in store.tasks()]


def scored(folder):
    with RecordStore.of_run(folder) as store:
        return [
            sum(score is not None for score in store.scores(stored.id)) for stored in store.tasks()
        ]


def test_the_stages_that_found_a_configuration_are_recorded(run):
    result = run()
    assert origins(result.folder) == [{"initial": 4, "explorer": 16}] * 2
    assert scored(result.folder) == [16, 16], "what the explorer found was scored before"
    assert [row.origins for row in result.operators] == [{"initial": 4, "explorer": 16}] * 2


@pytest.mark.parametrize(
    ("kind", "stage", "name"),
    [("samplers", Own, "sampler"), ("synthesizers", Swapping, "synthesizer")],
)
def test_what_sampler_and_synthesizer_put_in_is_theirs(run, kind, stage, name):
    for counts in origins(run(kind, stage).folder):
        assert counts == {"initial": 4, "explorer": 12, name: 4}


@pytest.mark.parametrize("stage", [Illegal, Repeating, Empty])
def test_random_search_in_a_stages_place_is_recorded_and_said_once(run, stage):
    with capture_logs() as logs:
        result = run(stage=stage)
    assert origins(result.folder) == [{"initial": 4, "fallback": 16}] * 2
    [logged] = [log for log in logs if log["event"] == WARNING]
    assert (logged["stage"], logged["log_level"]) == ("explorer 'odd'", "warning")


def test_a_stage_that_does_its_work_is_not_blamed_for_the_end_of_a_small_space(run):
    with capture_logs() as logs:
        result = run(operators=[[5, 5]], budget={"measurements": 25, "batch_size": 4})
    assert sum(origins(result.folder)[0].values()) == 25
    assert not [log for log in logs if log["event"] == WARNING]


def test_status_shows_where_configurations_came_from(run):
    folder = run(stage=Empty).folder
    shown = CliRunner().invoke(status_command, [str(folder)])
    assert "where configurations came from: initial 8, fallback 32" in shown.output
    document = json.loads(CliRunner().invoke(status_command, [str(folder), "--json"]).output)
    assert document["operators"][0]["origins"] == {"initial": 4, "fallback": 16}


def test_events_and_results_carry_it(run):
    result = run(stage=Empty)
    events = [
        json.loads(line) for line in (result.folder / "events.jsonl").read_text().split("\n")[:-1]
    ]
    batches = [event["origins"] for event in events if event["event"] == "BatchProposed"]
    assert batches[0] == {"initial": 4}
    assert batches[-1] == {"fallback": 4}
    written = json.loads((result.folder / "best.json").read_text())["operators"][0]
    assert written["origins"] == {"initial": 4, "fallback": 16}
    del written["origins"]
    assert OperatorResult.from_json(written).origins == {}, "as an earlier version wrote it"
