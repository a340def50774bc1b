"""The portfolio: who gets the rounds, how it is written, how mistakes are reported."""

import attrs
import numpy as np
import pytest
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.plugin_api import (
    Candidates,
    Choice,
    DesignSpace,
    Explorer,
    NoOptions,
    PluginRecord,
    Visited,
)
from chameleon_explorers._options import PortfolioOptions
from chameleon_explorers._portfolio import PortfolioExplorer
from chameleon_testing._conformance_cases import context_of, observe

SPACE = DesignSpace([Choice(name="k", options=tuple(range(1000)))])


class Scripted(Explorer):
    """Proposes one configuration after the other from its own part of the space."""

    begin = 0

    def __init__(self, options, context):
        self.rng, self.next, self.heard, self.asked = context.rng, self.begin, 0, 0

    def explore(self, score, visited, count):
        self.asked += 1
        configs = np.arange(self.next, self.next + 1, dtype=np.int32)[:, None]
        self.next += 1
        return Candidates(configs=configs, scores=np.zeros(len(configs)))

    def observe(self, observations):
        self.heard = len(observations)


class Other(Scripted):
    begin = 500


class Empty(Scripted):
    def explore(self, score, visited, count):
        self.asked += 1
        return Candidates(configs=np.empty((0, 1), np.int32), scores=np.empty(0))


def spec(name):
    record = PluginRecord(name=name, summary=name, factory=f"{__name__}:{name}", options=NoOptions)
    return StageSpec(kind="explorers", name=name, record=record, options=NoOptions())


def portfolio(*names, **options):
    chosen = PortfolioOptions(explorers=tuple(map(spec, names)), **options)
    return PortfolioExplorer(chosen, context_of(SPACE))


def shares(explorer, rounds, cost_of):
    """How many rounds each half of the space got, after ``rounds`` of them."""
    visited, seen, costs = Visited(SPACE), [], []
    for _ in range(rounds):
        config = explorer.explore(None, visited, 1).configs
        visited.add(config)
        seen.append(int(config[0, 0]))
        costs.append(cost_of(seen[-1], len(seen)))
        observations = observe(SPACE, np.array(seen, np.int32)[:, None])
        observations.costs[:] = costs
        explorer.observe(observations)
    lower = sum(config < 500 for config in seen)
    return lower, rounds - lower, seen


def test_who_improves_gets_the_rounds():
    # The lower half gets faster with every measurement, the upper one never does.
    lower, upper, _ = shares(
        portfolio("Scripted", "Other"), 60, lambda c, _: 1.0 / (1 + c) if c < 500 else 2.0
    )
    assert lower > 2 * upper
    assert upper >= 3


def test_who_improved_long_ago_loses_them():
    def cost(config, number):
        if number <= 20:
            return 100.0 / number if config < 500 else 1000.0
        return 1.0 / number if config >= 500 else 1000.0

    _, _, seen = shares(portfolio("Scripted", "Other", discount=0.9), 80, cost)
    assert sum(config >= 500 for config in seen[-30:]) > 15


def test_where_nobody_improves_all_get_their_turn():
    lower, upper, _ = shares(portfolio("Scripted", "Other"), 40, lambda *_: 1.0)
    assert abs(lower - upper) <= 4


def test_failures_earn_nothing_and_break_nothing():
    lower, upper, _ = shares(
        portfolio("Scripted", "Other"), 40, lambda c, n: np.inf if c < 500 else 1.0 / n
    )
    assert upper > lower


def test_the_next_one_steps_in_for_one_that_finds_nothing():
    explorer = portfolio("Empty", "Other")
    for _ in range(3):
        assert explorer.explore(None, Visited(SPACE), 1).configs[0, 0] >= 500


def test_all_learn_from_every_measurement():
    explorer = portfolio("Scripted", "Other", "Empty")
    shares(explorer, 5, lambda *_: 1.0)
    assert [arm.explorer.heard for arm in explorer._arms] == [5, 5, 5]


def test_every_explorer_has_a_generator_of_its_own():
    explorer = portfolio("Scripted", "Other")
    drawn = [arm.explorer.rng.random() for arm in explorer._arms]
    assert drawn[0] != drawn[1]


# -- as written in a pipeline ---------------------------------------------------------------

PIPELINE = """\
model: {operators: [{dense: {input: [8, 8], units: 8}}]}
target: llvm
explorer:
  name: portfolio
  explorers:
"""


def load(tmp_path, members, *overrides):
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE + "".join(f"  - {member}\n" for member in members))
    return load_pipeline(file, overrides)


def test_members_are_stages_with_options(tmp_path):
    pipeline = load(tmp_path, ["local", "{name: genetic, elites: 7}"])
    local, genetic = pipeline.explorer.options.explorers
    assert (local.name, genetic.name) == ("local", "genetic")
    assert genetic.options.elites == 7
    written = pipeline.document["explorer"]["explorers"]
    assert [member["name"] for member in written] == ["local", "genetic"]
    assert written[1]["elites"] == 7


def test_one_member_must_need_no_cost_model_if_there_is_none(tmp_path):
    nested = "{name: portfolio, explorers: [annealing]}"
    load(tmp_path, [nested, "local"], "cost_model=none")
    with pytest.raises(PipelineError, match="'portfolio' needs the scores of a cost model"):
        load(tmp_path, [nested, "ppo"], "cost_model=none")


def test_a_resolved_pipeline_reads_as_the_same_one(tmp_path):
    pipeline = load(tmp_path, ["{name: portfolio, explorers: [local, random]}", "annealing"])
    (tmp_path / "again.yaml").write_text(dump_yaml(dict(pipeline.document)))
    again = load_pipeline(tmp_path / "again.yaml")
    assert again.digest == pipeline.digest
    assert again.explorer.options == attrs.evolve(pipeline.explorer.options)


def test_all_mistakes_in_members_are_reported_with_their_place(tmp_path):
    with pytest.raises(PipelineError) as caught:
        load(tmp_path, ["locl", "{name: annealing, chans: 3}", "{name: genetic, elites: many}"])
    problems = [str(problem) for problem in caught.value.problems]
    assert len(problems) == 3
    assert ":6:5: unknown explorer 'locl'; did you mean 'local'?" in problems[0]
    assert ":7:23: unknown option 'chans' for explorer 'annealing'" in problems[1]
    assert ":8:" in problems[2]
    assert "elites" in problems[2]


def test_members_must_be_a_list(tmp_path):
    with pytest.raises(PipelineError, match="a list"):
        load(tmp_path, ["local"], "explorer.explorers=local")
