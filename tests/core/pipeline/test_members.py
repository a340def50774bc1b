"""Stages named inside stages come from the run's registry, whoever else uses their names."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.members import create_member
from chameleon_core.pipeline.nodes import PipelineError
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.plugins import NoOptions, PluginRecord, Registry, hookimpl
from synthetic import synthetic_document, synthetic_registry


@attrs.frozen(kw_only=True)
class TeamOptions:
    members: tuple[StageSpec | str, ...] = attrs.field(
        default=("first", "second"), metadata={"stages": "explorers"}
    )


@attrs.frozen(kw_only=True)
class FirstOptions:
    steps: int = 3


class First:
    """Has what an explorer needs."""

    def __init__(self, options: Any, context: Any) -> None:
        self.options, self.context = options, context

    def explore(self, *_: Any) -> None: ...

    def observe(self, *_: Any) -> None: ...


class Foreign(First):
    """Another distribution's."""


class Explorers:
    """A plugin with explorers."""

    def __init__(self, **records: tuple[str, type]) -> None:
        self.records = records

    @hookimpl
    def chameleon_explorers(self) -> list[PluginRecord]:
        return [
            PluginRecord(name=name, summary="", factory=f"{__name__}:{made}", options=options)
            for name, (made, options) in self.records.items()
        ]


OURS = (
    "ours",
    Explorers(
        team=("First", TeamOptions), first=("First", FirstOptions), second=("First", NoOptions)
    ),
)
THEIRS = "theirs", Explorers(first=("Foreign", NoOptions), third=("Foreign", NoOptions))


def team(tmp_path: Any, *plugins: Any, explorer: Any = "team") -> StageSpec:
    registry = synthetic_registry(*plugins)
    document = synthetic_document(tmp_path / "run", explorer=explorer)
    return from_dict(document, registry=registry).explorer


def made(spec: StageSpec) -> list[Any]:
    return [create_member("explorers", member, "context") for member in spec.options.members]


def test_members_by_default_are_the_run_s_and_stay_written_as_names(tmp_path):
    chosen = team(tmp_path, OURS)
    assert all(isinstance(member, StageSpec) for member in chosen.options.members)
    first, second = made(chosen)
    assert (first.options, second.options) == (FirstOptions(), NoOptions())
    assert first.context == "context"
    assert chosen.options_json == {"members": ["first", "second"]}


def test_a_default_s_names_are_its_own_distribution_s_though_another_uses_them(tmp_path):
    first, _ = made(team(tmp_path, OURS, THEIRS))
    assert type(first) is First


def test_a_third_party_s_member_may_be_told_apart_by_its_distribution(tmp_path):
    written = {"name": "team", "members": ["third", "theirs:first", {"name": "ours:first"}]}
    third, theirs, ours = made(team(tmp_path, OURS, THEIRS, explorer=written))
    assert [type(one) for one in (third, theirs, ours)] == [Foreign, Foreign, First]
    with pytest.raises(PipelineError, match="'first' is registered by 'ours' and 'theirs'"):
        team(tmp_path, OURS, THEIRS, explorer={"name": "team", "members": ["first"]})


def test_a_default_that_nobody_brings_is_said_when_the_pipeline_is_read(tmp_path):
    alone = "ours", Explorers(team=("First", TeamOptions), first=("First", FirstOptions))
    with pytest.raises(PipelineError, match="unknown explorer 'second'"):
        team(tmp_path, alone)


def test_options_made_without_a_pipeline_name_installed_stages():
    installed = Registry.load()
    if "random" not in installed.names("explorers"):
        pytest.skip("no explorers are installed")
    assert hasattr(create_member("explorers", "random", _Context()), "explore")


class _Context:
    """What the explorer of random configurations reads."""

    space = rng = None
