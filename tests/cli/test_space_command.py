"""``chameleon space``: what there is to choose, before anything is measured."""

import json
from functools import partial

import pytest
from chameleon_cli._space import count_in_words
from chameleon_core._errors import ExitCode
from ruamel.yaml import YAML
from synthetic import synthetic_document, synthetic_registry


@pytest.fixture
def space(tmp_path, install, command):
    """Runs the command on a pipeline of synthetic stages."""
    install(synthetic_registry())
    file = tmp_path / "pipeline.yaml"
    YAML().dump(synthetic_document(tmp_path / "run"), file)
    return partial(command, "space", file)


def test_json_has_every_operator_with_every_value(space):
    code, out, _ = space("--json")
    document = json.loads(out)
    assert code == ExitCode.OK
    assert document["space"] == "synthetic"
    for operator in document["operators"]:
        assert operator["size"] >= len(operator["knobs"][0]["values"])
        assert 0 <= operator["legal"]["share"] <= 1
        assert all(knob["values"] for knob in operator["knobs"])


def test_people_read_knobs_sizes_and_shares(space):
    document = json.loads(space("--json")[1])
    code, out, _ = space()
    assert code == ExitCode.OK
    for operator in document["operators"]:
        assert f"{operator['operator']}: {operator['kind']}" in out
        for knob in operator["knobs"]:
            assert f"\n    {knob['name']}" in out
    assert "index vectors" in out
    assert "are legal" in out


@pytest.mark.parametrize(
    ("size", "said"), [(4032, "4032"), (140_800_000, "1.41e+8"), (10**400, "1.00e+400")]
)
def test_a_size_is_told_whatever_it_is(size, said):
    assert count_in_words(size) == said


def test_one_operator_alone_and_one_that_is_not_there(space):
    first, *others = (row["operator"] for row in json.loads(space("--json")[1])["operators"])
    document = json.loads(space("--json", "--operator", first)[1])
    assert [row["operator"] for row in document["operators"]] == [first]
    code, _, err = space("--operator", f"{first}x")
    assert code == ExitCode.USAGE
    assert f"did you mean '{first}'" in err
    assert f"hint: operators: {', '.join([first, *others])}" in err


def test_samples_are_as_many_as_asked_for_at_most(space):
    document = json.loads(space("--json", "--samples", "2", "--guesses", "0")[1])
    for operator in document["operators"]:
        assert operator["legal"]["samples"] <= 2
        assert operator["guesses"] == []
