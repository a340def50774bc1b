"""Where the seconds of two runs went, read off their folders."""

import argparse
import json

import precision_seconds as seconds
import pytest
from chameleon_core.pipeline.load import from_dict

SETTLED = {"layout": "NHWC", "types": {"seconds": {"types": 0.5, "calibration": 2.0}}}


def _batch(name, count, *, search=0.0, model=0.0, measure=0.0):
    """A batch's event; seconds are the task's until then."""
    spent = {"search": search, "model": model, "measure": measure, "build": 99.0, "run": 99.0}
    return {"event": "BatchMeasured", "task": {"name": name}, "count": count, "spent": spent}


def _folder(folder, events, *, settled=None, network=(), alternative=False):
    started = {"event": "RunStarted", "settled": settled}
    folder.mkdir()
    lines = [json.dumps(row) for row in [started, *events]]
    (folder / "events.jsonl").write_text("\n".join(lines))
    operators = [{"name": "a", "measurements": 9, "task": {"name": "a"}}]
    if alternative:
        task = {"name": "a int8", "alternative_of": "a"}
        operators.append({"name": "a int8", "measurements": 5, "task": task})
    result = {"operators": operators, "network": dict(network)}
    (folder / "best.json").write_text(json.dumps(result))
    return folder


@pytest.fixture(name="folders")
def _folders(tmp_path):
    own = [
        _batch("a", 1, measure=1.0),
        _batch("a", 4, search=0.25, model=0.5, measure=3.0),
        # What a budget leaves of a last batch may be one configuration; it was searched for.
        _batch("a", 1, search=0.5, model=0.75, measure=4.0),
    ]
    other = [_batch("a int8", 1, measure=1.5), _batch("a int8", 4, search=0.5, measure=3.0)]
    base = {"delivered_seconds": 30.0, "latency_seconds": 4e-3, "delivery_seconds": {"compile": 6}}
    steps = {"compile": 6, "simulating types": 3}
    types = {**base, "precision": "int8", "delivery_seconds": steps, "latency_seconds": 2e-3}
    return [
        _folder(tmp_path / "float32", own, network=base),
        _folder(tmp_path / "types", own + other, settled=SETTLED, network=types, alternative=True),
    ]


def test_seconds_are_told_apart_by_whose_they_are_and_what_they_bought(folders):
    rows = {name: rest for name, *rest in seconds.rows_of(*map(seconds.seconds_of, folders))}
    assert rows == {
        "base type: first guesses": [1.0, 1.0],
        "base type: searching and learning": [1.25, 1.25],
        "base type: measuring": [3.0, 3.0],
        "alternatives: first guesses": [0.0, 1.5],
        "alternatives: searching and learning": [0.0, 0.5],
        "alternatives: measuring": [0.0, 1.5],
        "**tuning**": [5.25, 8.75],
        "settling types": [0.0, 0.5],
        "settling calibration": [0.0, 2.0],
        "compile": [6, 6],
        "simulating types": [0.0, 3],
        "**all of these**": [11.25, 20.25],
    }


def test_the_ratio_of_tuning_and_what_was_delivered_are_printed(folders, capsys):
    seconds.main(["--read", *map(str, folders)])
    said = capsys.readouterr().out
    assert "| **tuning** | 5.2 | 8.8 | 1.67 |" in said
    assert "| simulating types | 0.0 | 3.0 |  |" in said, "nothing to divide by"
    assert "tuning takes 1.67 times as long for 1.56 times the measurements: 9 of 1 tasks" in said
    assert "then 9 of 1 and 5 of 1 alternatives" in said
    assert said.splitlines()[-1] == "int8: 2 ms, delivered after 30.0 s"


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="has no finished run"):
        seconds.seconds_of(tmp_path)


def test_the_two_pipelines_differ_in_the_precision_alone(tmp_path):
    options = argparse.Namespace(
        network="resnet_small", scheduler="gradient", measurements=40, seed=3
    )
    precision = {"search": ["int8"], "max_error": 0.01}
    base, types = (
        from_dict(seconds.document_of(options, tmp_path, row)) for row in (None, precision)
    )
    assert (base.budget, base.seed, base.scheduler) == (types.budget, 3, types.scheduler)
    assert "precision" not in base.sections
    assert types.sections["precision"].types == ("int8",)
    assert base.budget.scope == "network"
