"""How much longer a run with types takes, read off the results of two runs."""

import argparse
import json

import precision_seconds as seconds
import pytest
from chameleon_core._pipeline.load import from_dict


def _folder(folder, *, network, **spent):
    operators = [
        {"wall_seconds": took, "measurements": count, "task": {"name": name, **more}}
        for name, (took, count, more) in spent.items()
    ]
    folder.mkdir()
    (folder / "best.json").write_text(json.dumps({"operators": operators, "network": network}))
    return str(folder)


def test_the_ratio_of_tuning_and_what_was_delivered_are_printed(tmp_path, capsys):
    base = _folder(tmp_path / "base", network={"delivered_seconds": 30.0}, a=(5.25, 9, {}))
    types = _folder(
        tmp_path / "types",
        network={"delivered_seconds": 60.0, "precision": "int8"},
        a=(5.25, 9, {}),
        other=(3.5, 5, {"alternative_of": "a"}),
    )
    seconds.main(["--read", base, types])
    assert capsys.readouterr().out == (
        "tuning takes 1.67 times as long for 1.56 times the measurements\n"
        "float32: 5.2 s of tuning, 9 measurements of 1 tasks, 0 of which are alternatives; "
        "delivered after 30.0 s\n"
        "int8: 8.8 s of tuning, 14 measurements of 2 tasks, 1 of which are alternatives; "
        "delivered after 60.0 s\n"
    )


def test_a_folder_without_a_finished_run_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="has no finished run"):
        seconds.result_of(tmp_path)


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
