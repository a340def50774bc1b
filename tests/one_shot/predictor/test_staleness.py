"""A space that changes fails here, with the model to train anew and the command that does it."""

from __future__ import annotations

import pytest
from chameleon_core.errors import ConfigError
from chameleon_one_shot.models import in_the_box
from chameleon_one_shot.predictor import staleness
from chameleon_one_shot.predictor.examples import schema_of
from chameleon_one_shot.predictor.header import read_header


@pytest.mark.parametrize("name", sorted(in_the_box()) or [None])
def test_no_model_in_the_box_is_stale(name):
    if name is None:
        pytest.skip("no model is in the box")
    assert not staleness.stale(read_header(in_the_box()[name]), name)


@pytest.fixture
def header(made, monkeypatch):
    """A model's header with one sample, and a provider of its space."""
    task = made.task_of(64, 32)

    class Provider:
        space = staticmethod(made.space_of)

        def design_space(self, task):
            return self.space(task)

    monkeypatch.setattr(staleness, "provider", lambda name, options: Provider())
    sample = {
        "task": task.to_json(),
        "space": "made-up",
        "space_options": {},
        "schema": schema_of(made.space_of(task)),
    }
    return {"provenance": {"samples": [sample], "command": "chameleon pretrain d"}}, Provider


def test_what_has_not_changed_is_not_stale(header):
    assert staleness.stale(header[0], "m") == []


def test_another_knob_is_noticed(header, made):
    found, provider = header
    provider.space = staticmethod(lambda task: _without_last_knob(made.space_of(task)))
    (sentence,) = staleness.stale(found, "m")
    assert "of product has other knobs" in sentence
    assert "'m' anew with `chameleon pretrain d`" in sentence


def test_a_space_that_is_gone_is_noticed(header):
    found, provider = header

    def gone(task):
        raise ConfigError("no such space")

    provider.space = staticmethod(gone)
    assert "no such space" in staleness.stale(found, "m")[0]


def test_sizes_alone_change_no_schema(made):
    spaces = [made.space_of(made.task_of(*sizes)) for sizes in ((64, 32), (512, 96))]
    assert schema_of(spaces[0]) == schema_of(spaces[1])
    assert spaces[0].fingerprint != made.space_of(made.task_of(64, 8)).fingerprint


def _without_last_knob(space):
    from chameleon_core.space import DesignSpace  # noqa: PLC0415

    return DesignSpace(space.knobs[:-1])
