"""Rivals of a suite have options like any other stage, other stages among them."""

import attrs
import pytest
from chameleon_bench._cells.running import run_cell
from chameleon_core._loop.interruption import Interruption
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.schema import StageSpec
from synthetic import SyntheticRival, plugin_of, record_of, synthetic_registry

SUITE = """\
pipelines:
  other: {rival: team, members: MEMBERS}
tasks:
  - model: {synthetic: {operators: [[5, 5]]}}
budget: {measurements: 20}
runner: synthetic-replay
"""


@attrs.frozen(kw_only=True)
class TeamOptions:
    members: tuple[StageSpec | str, ...] = attrs.field(metadata={"stages": "explorers"})


class Team(SyntheticRival):
    """Tells who its members are."""

    def __init__(self, options: TeamOptions) -> None:
        self.members = options.members

    def tune(self, task, **given):
        names = [f"{member.kind}:{member.name}" for member in self.members]
        return attrs.evolve(super().tune(task, **given), details={"members": names})


PLUGIN = plugin_of(rivals=[record_of(Team, TeamOptions)])


@pytest.fixture
def load_team(load):
    return lambda members: load(SUITE.replace("MEMBERS", members), plugins=[PLUGIN])


def test_stages_among_its_options_are_made_of_the_run_s_plugins(load_team):
    (cell,) = load_team("[synthetic, {name: synthetic}]").cells()
    result = run_cell(cell, registry=synthetic_registry(PLUGIN), interruption=Interruption())
    assert result.failure is None
    assert result.environment["op0"]["members"] == ["explorers:synthetic"] * 2


def test_what_is_wrong_with_them_is_told_with_its_place(load_team):
    with pytest.raises(PipelineError) as caught:
        load_team("[synthetik, {name: synthetic, chains: 3}]")
    assert [str(problem).partition("suite.yaml:")[2] for problem in caught.value.problems] == [
        "2:34: unknown explorer 'synthetik'; did you mean 'synthetic'?",
        "2:63: unknown option 'chains' for explorer 'synthetic'",
    ]
