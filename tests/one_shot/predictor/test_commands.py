"""``chameleon pretrain`` and ``chameleon evaluate-predictor``, from a folder to a table."""

import json

import pytest
from chameleon_one_shot._commands.evaluate_predictor import command as evaluate
from chameleon_one_shot._commands.pretrain import command as pretrain
from chameleon_one_shot._dataset.format import create, write_part
from chameleon_one_shot._predictor.header import ModelFileError
from chameleon_one_shot._predictor.model import load
from click.testing import CliRunner


@pytest.fixture(scope="module")
def dataset(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    create(folder)
    write_part(folder, [made.measured(*sizes, count=16) for sizes in made.sizes], name="all")
    return folder


@pytest.fixture(scope="module")
def trained(dataset, tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "m.safetensors"
    words = [dataset, "--to", file, "--threads", 1, "--json"]
    words += ["--kind", "networks", "--members", 1, "--steps", 10, "--width", 8]
    result = CliRunner().invoke(pretrain, list(map(str, words)), catch_exceptions=False)
    return file, json.loads(result.stdout)


def test_a_model_is_trained_and_says_what_of(dataset, trained):
    file, printed = trained
    model = load(file)
    assert printed["training"] == len(model.provenance.training)
    assert printed["held_out"]["tasks"] == len(model.provenance.held_out) > 0
    parts = (model.provenance.training, model.provenance.stopping, model.provenance.held_out)
    assert sum(map(len, parts)) == len(set().union(*parts)) == 8
    assert model.provenance.command.startswith(f"chameleon pretrain {dataset} --to {file}")
    assert "--width 8" in model.provenance.command


def test_all_models_are_judged_by_the_same_tasks(dataset, trained):
    words = [trained[0], dataset, "--json", "--threads", 1]
    words += ["--against", "xgboost", "--against", "lightgbm", "--against", "first-guesses"]
    result = CliRunner().invoke(evaluate, list(map(str, words)), catch_exceptions=False)
    document = json.loads(result.stdout)
    assert set(document["models"]) == {"one-shot", "xgboost", "lightgbm", "first-guesses"}
    judged = {
        name: {task["task"] for task in document["tasks"] if task["model"] == name}
        for name in document["models"]
    }
    assert judged["one-shot"] == set(load(trained[0]).provenance.held_out)
    assert len(set(map(frozenset, judged.values()))) == 1
    assert document["models"]["first-guesses"]["tau"] == 0.0  # choices alone tell of no guesses
    for speeds in document["speeds"].values():
        assert 0.0 < speeds["unmeasured"] <= speeds["measured"] <= 1.0


def test_a_file_of_something_else_is_refused(dataset, tmp_path):
    file = tmp_path / "m.safetensors"
    file.write_bytes(b"\x80\x04nothing")
    with pytest.raises(ModelFileError, match="no predictor of Chameleon"):
        CliRunner().invoke(evaluate, [str(file), str(dataset)], catch_exceptions=False)
