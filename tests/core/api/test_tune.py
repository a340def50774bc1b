"""A whole run from Python: the same checks and errors as the command line, and typed results."""

import importlib
import io
import json
import sys
import tempfile
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import chameleon_core as cc
import numpy as np
import pytest
from chameleon_core._api import tune
from chameleon_core._errors import ChameleonError, ConfigError, RunFolderError
from chameleon_core._events import BatchMeasured, RunFinished
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from synthetic import synthetic_document, synthetic_registry


@pytest.fixture
def registry():
    return synthetic_registry()


@pytest.fixture
def document(tmp_path):
    return synthetic_document(tmp_path / "run", operators=[[7, 9]])


def test_a_run_from_a_mapping_is_the_run_of_the_pipeline(document, registry, tmp_path, capsys):
    result = cc.tune(document, registry=registry)
    assert result.finished
    assert result.folder == tmp_path / "run"
    again = run_pipeline(
        from_dict({**document, "output": str(tmp_path / "same")}, registry=registry)
    )
    assert result.best == again.operators[0].best
    assert result.only.seconds == again.operators[0].tuned_seconds
    assert len(result.measurements) == 20
    printed = capsys.readouterr()
    assert str(result.folder) in printed.err
    assert not printed.out


def test_keywords_are_laid_over_a_file(document, registry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    del document["output"]
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(document))
    result = cc.tune(file, registry=registry, progress=False, budget={"measurements": 8})
    assert result.folder == tmp_path / "runs" / "mine"
    assert len(result.measurements) == 8
    other = cc.tune(file, registry=registry, progress=False, seed=1, output="other")
    assert other.folder == tmp_path / "other"
    assert len(other.measurements) == 20


def test_keywords_alone_are_a_pipeline_in_a_folder_of_its_own(
    document, registry, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    del document["output"]
    first, other = (cc.tune(**document, registry=registry, progress=False) for _ in range(2))
    assert first.folder != other.folder
    assert first.folder.parent == other.folder.parent == tmp_path
    assert first.best == other.best


def test_what_is_wrong_is_said_where_it_is_and_leaves_no_folder(
    document, registry, tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    del document["output"]
    wrong = {**document, "budgit": {}, "explorer": "syntetic"}
    with pytest.raises(ConfigError) as caught:
        cc.tune(wrong, registry=registry, seed="x", scheduler={"name": "round-robin", "odd": 1})
    said = str(caught.value)
    assert "pipeline, budgit: unknown key 'budgit'; did you mean 'budget'?" in said
    assert "did you mean 'synthetic'" in said
    assert "arguments, seed: " in said
    assert "arguments, scheduler.odd: unknown option 'odd'" in said
    with pytest.raises(ConfigError, match="missing 'model'"):
        cc.tune(registry=registry)
    with pytest.raises(ConfigError, match="'callbacks' must be a list of functions"):
        cc.tune(document, registry=registry, callbacks=print)


def test_a_callback_that_fails_is_called_no_more(document, registry, capsys):
    called = []

    def odd(event):
        called.append(event)
        raise RuntimeError("odd")

    assert cc.tune(document, registry=registry, progress=False, callbacks=[odd]).finished
    assert len(called) == 1
    assert "callbacks[0], test_a_callback_that_fails_is_called_no_more.<locals>.odd" in (
        capsys.readouterr().out
    )


def test_a_callback_stops_a_run_that_the_same_call_continues(document, registry, tmp_path):
    def enough(event):
        return cc.STOP if isinstance(event, BatchMeasured) and event.round == 1 else None

    stopped = cc.tune(document, registry=registry, progress=False, callbacks=[enough])
    assert not stopped.finished
    assert 8 <= len(stopped.measurements) < 20
    assert stopped.only.seconds == stopped.measurements.seconds.min()
    continued = cc.tune(document, registry=registry, progress=False)
    whole = cc.tune(document, registry=registry, progress=False, output=tmp_path / "whole")
    assert continued.finished
    assert continued.best == whole.best
    assert set(map(tuple, continued.measurements.configs.tolist())) == set(
        map(tuple, whole.measurements.configs.tolist())
    )


def test_a_run_is_loaded_as_arrays(tmp_path, registry):
    cc.tune(synthetic_document(tmp_path / "run", failing=20), registry=registry, progress=False)
    run = cc.load_run(tmp_path / "run")
    assert list(run.operators) == ["op0", "op1"]
    first = run.operators["op1"].measurements
    assert first.configs.shape == (20, 3)
    failed = np.array([kind is not None for kind in first.failures])
    assert failed.any()
    assert np.isinf(first.seconds[failed]).all()
    assert np.isnan(first.max_relative_error).all()
    assert (np.diff(first.measured_at) >= 0).all()
    assert len(first.configurations) == len(first.origins) == len(first.build_seconds) == 20
    assert first[0].configuration == {f"knob{i}": v for i, v in enumerate(first[0].config)}
    front = run.operators["op1"].front(("seconds", "build_seconds"))
    assert front[0].seconds == first.seconds.min()
    with pytest.raises(ConfigError, match="2 operators, not one") as caught:
        _ = run.best
    assert "op0, op1" in caught.value.hint
    with pytest.raises(RunFolderError, match="no run folder"):
        cc.load_run(tmp_path)


def test_a_notebook_shows_a_table_with_curves(tmp_path, registry):
    cc.tune(synthetic_document(tmp_path / "a&b"), registry=registry, progress=False)
    page = ET.fromstring(f"<p>{cc.load_run(tmp_path / 'a&b')._repr_html_()}</p>")  # noqa: S314
    assert "a&b" in page.findtext("pre")
    _, *rows = page.iter("tr")
    assert [row.findtext("td") for row in rows] == ["op0", "op1"]
    assert [row.findall("td")[1].text for row in rows] == ["20", "20"]
    for line in page.iter("polyline"):
        heights = [float(point.split(",")[1]) for point in line.get("points").split()]
        assert heights == sorted(heights), "the lowest time never rises"
        assert max(heights) == 32


def test_a_requirement_is_read_again(document, registry):
    document["require"] = {"min_ratio": 1e6, "against": "synthetic"}
    run = cc.tune(document, registry=registry, progress=False)
    assert run.result.missed
    assert cc.load_run(run.folder).result.missed == run.result.missed


def test_measurements_become_a_data_frame(document, registry):
    pandas = pytest.importorskip("pandas")
    frame = cc.tune(document, registry=registry, progress=False).measurements.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 20
    assert {"knob.knob0", "knob.knob1", "seconds", "failure", "origin"} <= set(frame.columns)


def test_without_pandas_there_is_a_sentence(document, registry, monkeypatch):
    run = cc.tune(document, registry=registry, progress=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ChameleonError, match="need pandas") as caught:
        run.measurements.to_pandas()
    assert "pip install pandas" in caught.value.hint


class Point:
    """An entry point."""

    value = "some.where:display"

    def __init__(self, make):
        self._make = make

    def load(self):
        return self._make


def test_an_installed_display_is_used_and_closed(document, registry, monkeypatch):
    seen = []

    class Shown:
        def __init__(self, stream):
            self.stream = stream

        @tune.hookimpl
        def chameleon_run_finished(self, event):
            seen.append(event)

        def close(self):
            seen.append("closed")

    def points(*, group):
        assert group == "chameleon.progress"
        return [Point(lambda _: 1 / 0), Point(Shown)]

    monkeypatch.setattr(tune.metadata, "entry_points", points)
    cc.tune(document, registry=registry)
    assert isinstance(seen[0], RunFinished)
    assert seen[1:] == ["closed"]


def test_without_one_there_are_plain_lines(document, registry, monkeypatch):
    monkeypatch.setattr(tune.metadata, "entry_points", lambda group: [])
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    result = cc.tune(document, registry=registry)
    lines = stream.getvalue().splitlines()
    assert lines[0] == f"tuning op0: {result.folder}"
    better = [line for line in lines if line.endswith(" measurements")]
    assert len(better) > 1
    assert lines[-2].startswith(better[-1].partition(" after ")[0])
    assert lines[-2].endswith(", 20 measured, the measurement budget is spent")
    assert lines[-1].startswith("finished after ")


def test_the_command_line_brings_a_display():
    """The distribution announces it; here it is read from the source, as nothing is installed."""
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "packages/chameleon-cli/pyproject.toml").read_text())["project"]
    (target,) = project["entry-points"][tune.DISPLAYS].values()
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(io.StringIO()).close()


def test_everything_exported_is_there_and_importing_it_is_cheap(run_python):
    assert set(cc.__all__) <= set(dir(cc))
    for name in cc.__all__:
        assert getattr(cc, name).__doc__ or name == "STOP"
    with pytest.raises(AttributeError, match="no attribute 'tunes'"):
        _ = cc.tunes
    code = "import chameleon_core, sys; print(*{'numpy', 'attrs', 'pluggy'} & set(sys.modules))"
    assert not run_python(code).strip()
