"""Rivals of a suite have options like any other stage, other stages among them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from chameleon_bench.cells.running import run_cell
from chameleon_bench.suites.load import load_suite
from chameleon_core.loop.interruption import Interruption
from chameleon_core.pipeline.nodes import PipelineError
from chameleon_core.pipeline.schema import StageSpec
from synthetic import SyntheticRival, record_of, registering, synthetic_registry

SUITE = """\
pipelines:
  other: {rival: team, members: MEMBERS}
tasks:
  - model: {synthetic: {operators: [[5, 5]]}}
budget: {measurements: 20}
target: nowhere
space: synthetic
explorer: synthetic
cost_model: synthetic
sampler: synthetic
synthesizer: synthetic
scheduler: round-robin
runner: synthetic-replay
"""


@attrs.frozen(kw_only=True)
class TeamOptions:
    members: tuple[StageSpec | str, ...] = attrs.field(metadata={"stages": "explorers"})


class Team(SyntheticRival):
    """Tells who its members are."""

    def __init__(self, options: TeamOptions) -> None:
        self.members = options.members

    def tune(self, task: Any, **given: Any) -> Any:
        names = [f"{member.kind}:{member.name}" for member in self.members]
        return attrs.evolve(super().tune(task, **given), details={"members": names})


class Plugin:
    chameleon_rivals = registering(record_of(Team, TeamOptions))


@pytest.fixture
def load(tmp_path):
    def made(members):
        file = tmp_path / "suite.yaml"
        file.write_text(SUITE.replace("MEMBERS", members), encoding="utf-8")
        output = f"output={tmp_path / 'out'}"
        return load_suite(file, [output], registry=synthetic_registry(Plugin()))

    return made


def test_stages_among_its_options_are_made_of_the_run_s_plugins(load):
    (cell,) = load("[synthetic, {name: synthetic}]").cells()
    result = run_cell(cell, registry=synthetic_registry(Plugin()), interruption=Interruption())
    assert result.failure is None
    assert result.environment["op0"]["members"] == ["explorers:synthetic"] * 2


def test_what_is_wrong_with_them_is_told_with_its_place(load):
    with pytest.raises(PipelineError) as caught:
        load("[synthetik, {name: synthetic, chains: 3}]")
    assert [str(one).partition("suite.yaml:")[2] for one in caught.value.problems] == [
        "2:34: unknown explorer 'synthetik'; did you mean 'synthetic'?",
        "2:63: unknown option 'chains' for explorer 'synthetic'",
    ]
