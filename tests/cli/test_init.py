"""``init`` asks nothing: it writes a pipeline for the model that lies beside it."""

import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest
from chameleon_core._errors import ExitCode
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core.plugin_api import FrontendRecord, PresetRecord
from synthetic import plugin_of


@attrs.frozen(kw_only=True)
class SourceOptions:
    source: str


NETS = FrontendRecord(
    name="nets",
    summary="By.",
    factory="none:None",
    options=SourceOptions,
    detect="detecting:models",
)
"""A frontend whose files end with ``.net`` and list the models in them."""


def models(folder, file):
    if not file.endswith(".net"):
        return
    for name in (folder / file).read_text().split():
        yield PresetRecord(
            name=f"{file}:{name}",
            summary="A.",
            pipeline={
                "model": {"nets": f"{file}:{name}"},
                "baselines": [],
                "budget": {"measurements": 7, "scope": "network"},
            },
            reasons={"budget": "Seven is enough."},
        )


@pytest.fixture
def detecting(chameleon, install, fakes, monkeypatch):
    monkeypatch.setitem(sys.modules, "detecting", SimpleNamespace(models=models))
    install(fakes.registry(("my-nets", plugin_of(frontends=[NETS]))))
    return chameleon


def test_it_quotes_the_next_command(detecting):
    assert detecting("init", "my p.yaml").out.rstrip().endswith("chameleon run 'my p.yaml'")


def test_it_takes_the_model_beside_the_pipeline(detecting, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "a.net").write_text("one two")
    first, second = detecting("init", "some/p.yaml").out.splitlines()
    assert "for a.net:one, of 2 models the last changed; next: chameleon run some/p.yaml" in first
    assert second == "  for a.net:two: chameleon init --model some/a.net:two --force some/p.yaml"
    pipeline = load_pipeline("some/p.yaml")
    assert pipeline.model.options.source == "a.net:one"
    assert pipeline.budget.measurements == 7
    assert not pipeline.baselines
    text = Path("some/p.yaml").read_text()
    assert "# Seven is enough.\nbudget:\n  measurements: 7\n  scope: network\n" in text
    assert "# require: {network_ratio: 1.0}" in text
    # The command of the second line chooses the other model.
    assert detecting(*shlex.split(second.partition("chameleon ")[2])).code == ExitCode.OK
    assert load_pipeline("some/p.yaml").model.options.source == "a.net:two"


def test_the_file_that_changed_last_comes_first(detecting, tmp_path):
    (tmp_path / "a.net").write_text("one")
    (tmp_path / "b.net").write_text("two")
    os.utime(tmp_path / "a.net", (0, 0))
    assert "for b.net:two, of 2" in detecting("init", "p.yaml").out
    os.utime(tmp_path / "b.net", (0, 0))
    assert "for a.net:one, of 2" in detecting("init", "q.yaml").out


def test_a_model_elsewhere_is_named_from_the_pipeline(detecting, tmp_path):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "b.net").write_text("three")
    assert "for a convolution, as an example" in detecting("init").out
    detecting("init", "p.yaml", "--model", "some/b.net")
    assert load_pipeline("p.yaml").model.options.source == "some/b.net:three"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "a.net:three"], "hint: models in the file: a.net:one, a.net:two"),
        (["--model", "b.net"], "there is no file b.net"),
        (["--model", "a.txt"], "a.txt is no model that an installed frontend knows"),
        (["--plugin", "explorer", "mine", "--model", "a.net"], "a plugin has no model"),
    ],
)
def test_a_wrong_choice_is_an_error_that_names_the_right_ones(detecting, tmp_path, words, said):
    (tmp_path / "a.net").write_text("one two")
    (tmp_path / "a.txt").write_text("one")
    outcome = detecting("init", *words)
    assert outcome.code == ExitCode.USAGE
    assert said in outcome.err
    assert not Path("pipeline.yaml").exists()
