"""``chameleon transform``, from a pipeline file to a folder that torch alone can load."""

import json

import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core.api import Registry
from chameleon_transforms import hooks
from chameleon_transforms._session import Session

NETWORK = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 10)), (torch.zeros(1, 1, 8, 8),)

def two_inputs():
    return nn.Identity(), (torch.zeros(1, 1, 8, 8), torch.zeros(1))
"""


@pytest.fixture(scope="module")
def registry():
    """The installed plugins, and these where they are not."""
    if "chameleon-tuner-transforms" in Registry.default().distributions:
        return Registry.default()
    return Registry.from_plugins([("chameleon-tuner-transforms", hooks)], with_installed=True)


@pytest.fixture
def pipeline(tmp_path, registry):
    (tmp_path / "net.py").write_text(NETWORK)

    def make(function="make", **transform):
        transform = {"candidates": 12, "rounds": 1, "per_round": 0, "data": "digits", **transform}
        return from_dict(
            {
                "model": {"torch": f"{tmp_path / 'net.py'}:{function}"},
                "target": "native",
                "transform": transform,
                "baselines": [],
                "output": str(tmp_path / "run"),
            },
            registry=registry,
        )

    return make


def test_a_front_and_the_folder_of_a_point(pipeline, tmp_path):
    session = Session(pipeline(scores=["fisher", "naswot"]))
    result = session.run()
    folder = tmp_path / "run" / "transform"
    assert json.loads((folder / "front.json").read_text()) == session.read_front()
    assert {row.name for row in folder.iterdir()} == {"front.json", "front.csv", "front.html"}
    assert result["judged"] == 12
    assert result["front"], "with predicted times there always is one"
    assert not result["measured"]
    assert set(result["original"]["scores"]) == {"fisher", "naswot"}
    where, fresh = session.deliver(result, 0)
    assert not fresh
    names = {"network.py", "network.weights.pt", "original.py", "original.weights.pt"}
    assert names | {"retrain.py", "point.json", "data"} == {row.name for row in where.iterdir()}
    with pytest.raises(ConfigError, match="no point 99"):
        session.deliver(result, 99)
    # Another space: its rows mean something else.
    assert Session(pipeline(sequence=1, transforms=["group"])).read_front() is None


def test_the_section_is_written_out_and_binds_no_folder(pipeline, registry):
    arguments = pipeline()
    assert arguments.document["transform"]["transforms"][0] == "group"
    again = from_dict(arguments.document, registry=registry)
    assert again.sections["transform"].transforms[0].name == "group"
    assert from_dict(again.document, registry=registry).document == again.document
    assert pipeline(candidates=5).digest == arguments.digest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": 0}, "candidates"),
        ({"batch": 1}, "batch"),
        ({"widths": [2]}, "'widths' must include 1"),
        ({"transforms": []}, "'transforms' for 'transform' is empty"),
        ({"transforms": ["gruop"]}, "did you mean 'group'"),
        ({"scores": [{"name": "fisher", "seed": 1}]}, "unknown option 'seed'"),
        ({"candidats": 3}, "did you mean 'candidates'"),
        ({"transforms": [{"name": "group", "groups": [1]}]}, "groups"),
    ],
)
def test_what_is_wrong_with_the_section(pipeline, options, words):
    with pytest.raises(PipelineError, match=words):
        pipeline(**options)


def test_models_that_cannot_be_transformed(pipeline, registry, tmp_path):
    with pytest.raises(ConfigError, match="one batch of images"):
        _ = Session(pipeline("two_inputs")).network
    convolution = {"conv2d": {"input": [1, 8, 8, 8], "filters": 8, "kernel": 3}}
    for model in ({"builtin": "bert_small"}, {"operators": [convolution]}):
        document = {"model": model, "target": "native", "transform": {}, "baselines": []}
        values = from_dict({**document, "output": str(tmp_path)}, registry=registry)
        with pytest.raises(ConfigError, match=r"no images|no module of torch"):
            _ = Session(values).source


def test_a_pipeline_without_the_section_is_told(pipeline, registry):
    document = {key: row for key, row in pipeline().document.items() if key != "transform"}
    with pytest.raises(ConfigError, match="no section 'transform'"):
        Session(from_dict(document, registry=registry))


@pytest.fixture
def transform(tmp_path):
    """Words of a command line that delivers a point of the front after ten milliseconds."""
    (tmp_path / "net.py").write_text(NETWORK)
    (tmp_path / "p.yaml").write_text(
        "model: {torch: {source: 'net.py:make', compare: false, check: false}}\n"
        "target: native\nrunner: {workers: 1}\nbaselines: []\n"
        "transform: {candidates: 4, rounds: 1, per_round: 0}\n"
        f"budget: {{wall_time: 10ms, scope: network}}\noutput: {tmp_path / 'run'}\n"
    )
    return ["transform", str(tmp_path / "p.yaml"), "--point", "0"]


@pytest.mark.full
def test_a_point_is_delivered_whole_however_short_the_budget(transform, tmp_path, capfd):
    assert command_line(transform) == 0
    printed = capfd.readouterr().out
    folder = tmp_path / "run" / "transform" / "point_0" / "run" / "network"
    assert f"compiled, with weights from before training: {folder}" in printed
    assert (folder / "load.py").exists()
    assert "not measured, delivered with the first guess" in printed
    assert "larger `budget`" in printed


@pytest.mark.long
def test_a_larger_budget_measures_every_operator_of_a_point(transform, capfd):
    assert command_line(transform) == 0
    capfd.readouterr()
    larger = "budget={measurements: 4, scope: network}"
    assert command_line([*transform, "--set", larger, "--json"]) == 0
    delivered = json.loads(capfd.readouterr().out)["delivered"]
    assert "unmeasured" not in delivered["network"], "a larger budget reaches all"
