"""Knobs that a pipeline fixes: they hold in everything measured, and mistakes are located."""

from __future__ import annotations

import pytest
from chameleon_core.errors import ConfigError, RunFolderError
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict, load_pipeline
from chameleon_core.pipeline.resolve import dump_pipeline
from chameleon_core.run_folder import read_store
from synthetic import synthetic_document, synthetic_registry


def decoded(folder):
    with read_store(folder) as store:
        return {stored.task.name: store.decoded(stored.id) for stored in store.tasks()}


def test_a_fixed_knob_holds_in_everything_that_is_measured(pipeline):
    resolved = pipeline(fix={"knob0": 4, "op1": {"knob0": 2, "knob2": 1}})
    result = run_pipeline(resolved)
    measured = decoded(resolved.output)
    assert {one["knob0"] for one in measured["op0"]} == {4}
    assert {(one["knob0"], one["knob2"]) for one in measured["op1"]} == {(2, 1)}
    assert len(measured["op0"]) == 9
    assert [one["knob1"] for one in measured["op1"]] != [0] * 5
    assert result.operators[0].ended == "the space is exhausted"


def test_a_knob_that_only_some_operators_have_is_fixed_there(pipeline):
    resolved = pipeline(fix={"knob2": 3})
    run_pipeline(resolved)
    measured = decoded(resolved.output)
    assert {one["knob2"] for one in measured["op1"]} == {3}
    assert len({one["knob0"] for one in measured["op0"]}) > 1


def test_the_records_are_those_of_the_whole_space(pipeline):
    with read_store(run_pipeline(pipeline(fix={"knob0": 4})).folder) as store:
        fixed = {stored.fingerprint for stored in store.tasks()}
    whole = run_pipeline(pipeline(), fresh=True)
    assert fixed == {operator.fingerprint for operator in whole.operators}


def test_a_folder_is_bound_to_what_is_fixed(pipeline):
    run_pipeline(pipeline(fix={"knob0": 4}))
    with pytest.raises(RunFolderError, match=r"fix\.knob0 was 4 and is 3"):
        run_pipeline(pipeline(fix={"knob0": 3}))
    with pytest.raises(RunFolderError, match=r"fix\.knob0 was 4 and is not set"):
        run_pipeline(pipeline())


FILE = """\
model: {synthetic: {operators: [[7, 9], [5, 5, 5]]}}
fix:
  knob0: 4
  knop1: 1
  op1: {knob2: 9}
  op2:
    knob1: 0
"""


def test_mistakes_are_located(tmp_path):
    rest = synthetic_document(tmp_path / "run")
    overrides = [f"{key}={rest[key]!r}" for key in rest if key != "model"]
    file = tmp_path / "mine.yaml"
    file.write_text(FILE)
    registry = synthetic_registry()
    with pytest.raises(ConfigError) as told:
        run_pipeline(load_pipeline(file, overrides, registry=registry))
    assert str(told.value).splitlines() == [
        f"{file}:4:10: no operator has a knob 'knop1'; did you mean 'knob1'?",
        f"{file}:5:16: operator 'op1': knob 'knob2' has no value 9; its values are 0, 1, 2, 3, 4",
        f"{file}:7:12: there is no operator 'op2'; did you mean 'op1'?",
    ]


@pytest.mark.parametrize(
    ("fix", "said"),
    [
        ([1], "'fix' must be a mapping of knobs to values, not a list"),
        ({"knob0": None}, "fix.knob0: knob 'knob0' is fixed to no value"),
        ({"op0": {"knob0": {"a": 1}}}, "fix.op0.knob0: knob 'knob0' is fixed to no value"),
    ],
)
def test_what_is_no_value_is_refused_when_it_is_read(pipeline, fix, said):
    with pytest.raises(ConfigError, match=said):
        pipeline(fix=fix)


def test_it_is_written_out_and_read_again(pipeline, tmp_path):
    resolved = pipeline(fix={"knob0": 4, "op1": {"knob2": 1}})
    again = from_dict(resolved.document, registry=synthetic_registry())
    assert again.fix == resolved.fix
    assert "fix:\n  knob0: 4\n" in dump_pipeline(resolved)
    assert "fix" not in pipeline(fix={}).document
