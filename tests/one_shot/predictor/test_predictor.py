"""A predictor learns an order that holds for unseen tasks, says how sure it is, and is kept."""

import json
import pickle
import struct
import sys
from importlib import import_module
from unittest.mock import Mock

import attrs
import numpy as np
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_one_shot._predictor import trees
from chameleon_one_shot._predictor.encoding import EncodedTask
from chameleon_one_shot._predictor.examples import Scale, configs_of_choices
from chameleon_one_shot._predictor.header import ModelFileError, read_header
from chameleon_one_shot._predictor.metrics import Quality
from chameleon_one_shot._predictor.model import load
from chameleon_one_shot._predictor.out_of_distribution import _upper_bound
from chameleon_one_shot._predictor.training import means, train, training_task
from chameleon_one_shot._predictor.trees import TreePredictor
from chameleon_one_shot._tokens.configuration import recorded_tokens, task_tokens
from chameleon_one_shot._tokens.numbers import named_numbers
from chameleon_one_shot._tokens.vocabulary import Vocabulary


def test_an_unseen_task_is_ordered_far_better_than_by_chance(model, examples):
    unseen = examples[7]
    mean, deviation = model.predictor.of(unseen.tokens).moments(unseen.configs)
    assert Quality.of(mean, unseen.quality).tau > 0.4
    assert (deviation > 0).all()


def test_looked_up_tokens_predict_what_computed_ones_do(networks, examples):
    first = examples[0]
    network = networks.predictor.networks[0]
    task = training_task(first, networks.predictor.vocabulary, networks.predictor.scale)
    computed = means(network, task, torch.device("cpu"))
    scale = networks.predictor.scale
    looked_up, _ = networks.predictor.of(first.tokens).moments(first.configs)
    np.testing.assert_allclose(
        looked_up, scale.mean + scale.deviation * computed, rtol=1e-4, atol=1e-5
    )


def test_a_score_does_not_depend_on_the_others(model, examples):
    first = examples[3]
    predictor = model.predictor.of(first.tokens)
    together, _ = predictor.moments(first.configs)
    alone = [predictor.moments(first.configs[row : row + 1])[0][0] for row in range(5)]
    np.testing.assert_allclose(alone, together[:5], rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_network(examples, options):
    short = attrs.evolve(options, steps=4, evaluate_every=2)
    vocabulary = Vocabulary.fit((example.tokens, example.configs) for example in examples[:3])

    given = {"vocabulary": vocabulary, "scale": Scale.of(examples[:3]), "options": short}
    runs = (train(examples[:3], examples[3:4], seed=seed, **given) for seed in (1, 1, 2))
    result = [run.network.head.weight.detach() for run in runs]
    assert torch.equal(result[0], result[1])
    assert not torch.equal(result[0], result[2])


def test_trees_learn_last_from_the_tasks_that_told_their_errors(model, examples, options):
    known, row = model.predictor, examples[5]
    if not isinstance(known, TreePredictor):
        pytest.skip("it has networks")
    few, all_known = (known.retrain(examples[:end], options.seed) for end in (5, 7))
    ranks = [each.of(row.tokens).moments(row.configs)[0] for each in (known, all_known, few)]
    np.testing.assert_allclose(ranks[1], ranks[0], atol=1e-6)
    assert not np.allclose(ranks[2], ranks[0], atol=1e-6)


def test_trees_learn_the_order_within_a_task_alone(model, examples, monkeypatch):
    if not isinstance(model.predictor, TreePredictor):
        pytest.skip("it has networks")
    known, row = examples[:3], examples[5]
    shifts = {id(example): shift for shift, example in enumerate(known)}
    usual = trees.ranks

    def ranks():
        return model.predictor.retrain(known, 0).of(row.tokens).moments(row.configs)[0]

    before = ranks()
    monkeypatch.setattr(trees, "ranks", lambda row: usual(row) + 8.0 * shifts[id(row)])
    np.testing.assert_allclose(ranks(), before, atol=1e-6)


def test_choices_alone_have_the_tokens_of_their_knobs(made):
    task = made.measured(64, 32)
    tokens, configs = recorded_tokens(task.task, task.device, 2, task.choices)
    vocabulary = Vocabulary.fit([(tokens, configs)])
    values, absent = EncodedTask.of(tokens, vocabulary).values(configs)
    assert [knob.name for knob in tokens.knobs] == ["tile_rows", "tile_columns", "order", "unroll"]
    assert values.shape[:2] == absent.shape == (len(task), 4)
    assert not absent.any()


def test_choices_of_an_earlier_space_are_found_in_todays(made):
    """A space that has got an option and a knob since still has what was measured."""
    task = made.measured(64, 32)
    old = made.space_of(task.task)
    order = attrs.evolve(old.knobs[2], options=("tiles", *old.knobs[2].options))
    unroll = attrs.evolve(old.knobs[3], when=("order", (2,)))
    stages = Choice(name="stages", options=(1, 2))
    new = DesignSpace([stages, *old.knobs[:2], order, unroll])
    decoded = [new.decode(row) for row in configs_of_choices(new, task.choices)]
    assert decoded == [{"stages": 1, **choice} for choice in task.choices]
    with pytest.raises(ConfigError, match="tile_rows"):
        configs_of_choices(new, [{"tile_rows": 3}])


def test_knobs_that_do_not_apply_have_no_token(examples, model):
    first = examples[0]
    encoded = EncodedTask.of(first.tokens, model.predictor.vocabulary)
    _, absent = encoded.values(first.configs)
    assert (absent[:, 3] == (first.configs[:, 2] == 0)).all()
    assert not absent[:, :3].any()


def test_numbers_of_json_have_names():
    result = named_numbers(
        "a", {"n": [1, 3], "w": "relu", "f": ["x", "y"], "id": "0123456789abcdef"}
    )
    assert result == {"a.n.0": 1.0, "a.n.1": 2.0, "a.w=relu": 1.0, "a.f=x": 1.0, "a.f=y": 1.0}


def test_a_stored_model_predicts_the_same(model, examples, tmp_path):
    file = tmp_path / "m.safetensors"
    model.save(file)
    again, row = load(file), examples[7]
    both = (each.predictor.of(row.tokens).moments(row.configs) for each in (again, model))
    np.testing.assert_array_equal(*both)
    assert again.provenance == model.provenance
    assert again.detector.check_task(row.tokens, again.predictor.vocabulary) == (
        model.detector.check_task(row.tokens, model.predictor.vocabulary)
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-1], "cut off"),
        (lambda data: data + b"x", "after its end"),
        (lambda data: data[:40], "no predictor"),
        (lambda data: b"", "no predictor"),
        (lambda data: pickle.dumps({"weights": [1.0]}), "no predictor"),
    ],
)
def test_a_damaged_file_is_refused(model, tmp_path, damage, words):
    file = tmp_path / "m.safetensors"
    model.save(file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelFileError, match=words):
        load(file)


def test_damage_without_a_word_is_refused(model, tmp_path, monkeypatch):
    model.save(tmp_path / "m.safetensors")
    monkeypatch.setattr("safetensors.numpy.load", Mock(side_effect=RuntimeError))
    with pytest.raises(ModelFileError, match="is damaged: RuntimeError"):
        load(tmp_path / "m.safetensors")
    monkeypatch.setattr("safetensors.numpy.load", Mock(side_effect=RuntimeError("x" * 9999)))
    with pytest.raises(ModelFileError, match=r"is damaged: x{300}\n"):
        load(tmp_path / "m.safetensors")


@pytest.mark.parametrize(("version", "hint"), [(99, "Upgrade"), (0, "anew")])
def test_another_format_is_refused(model, tmp_path, version, hint):
    file = tmp_path / "m.safetensors"
    model.save(file)
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    own = json.loads(entries["__metadata__"]["chameleon_one_shot"])
    entries["__metadata__"]["chameleon_one_shot"] = json.dumps(own | {"format": version})
    text = json.dumps(entries).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    with pytest.raises(ModelFileError, match=f"format {version}") as caught:
        read_header(file)
    assert hint in (caught.value.hint or "")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFileError, match=r"nowhere\.safetensors"):
        load(tmp_path / "nowhere.safetensors")


def test_a_task_like_the_trained_ones_is_familiar(model, examples):
    detector, vocabulary = model.detector, model.predictor.vocabulary
    assert all(detector.check_task(example.tokens, vocabulary) is None for example in examples[:7])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"operator": "other"}, "operator other"),
        ({"rows": 1 << 20}, "sizes"),
        ({"dtype": "bfloat16"}, "operator product in bfloat16"),
    ],
)
def test_an_unlike_task_is_noticed(model, made, given, words):
    first = made.example(**{"rows": 64, "columns": 32, **given})
    # Two tasks held out tell little about how far is too far.
    limits = attrs.evolve(model.detector.limits, distance=1.0)
    detector = attrs.evolve(model.detector, limits=limits)
    reason = detector.check_task(first.tokens, model.predictor.vocabulary)
    assert reason is not None
    assert words in reason


def test_an_unlike_device_is_noticed(model, made, examples):
    assert model.detector.check_device(examples[0].tokens) is None
    elsewhere = made.example(64, 32, device={"kind": "cuda"})
    assert "device" in (model.detector.check_device(elsewhere.tokens) or "")


def test_less_certainty_than_usual_is_noticed(model):
    limit = model.detector.limits.deviation
    assert model.detector.check_uncertainty(limit) is None
    assert "standard deviation" in (model.detector.check_uncertainty(1.1 * limit) or "")


@pytest.mark.parametrize("count", [5, 10, 100])
def test_limits_are_upper_ends_of_prediction_intervals(count):
    from scipy import stats  # noqa: PLC0415

    values = np.random.default_rng(count).normal(size=count)
    spread = values.std(ddof=1) * np.sqrt(1 + 1 / count)
    expected = values.mean() + stats.t.ppf(0.99, count - 1) * spread
    assert _upper_bound(values.tolist()) == pytest.approx(max(expected, values.max()), rel=0.05)
    assert _upper_bound(values.tolist()[:1]) == np.inf


def test_what_a_space_guesses_is_a_token_of_its_own(made):
    example = made.example(64, 32)
    bare = example.tokens.space

    def cost(values):
        return 1.0 + values["tile_rows"]

    space = DesignSpace(
        bare.knobs, constraints=bare.constraints, features=bare.features_block, guessed_cost=cost
    )
    tokens = task_tokens(example.source.task, example.source.device, 2, space)
    assert [group.name for group in tokens.groups][:-1] == [g.name for g in example.tokens.groups]
    assert tokens.groups[-1].name == "guess[]"
    structure = tokens.structure(example.configs)
    expected = np.log(cost(space.values(example.configs)))
    assert structure[:, tokens.groups[-1].columns_of_structure[0]] == pytest.approx(
        expected, rel=1e-6
    )
    assert np.array_equal(structure[:, :-1], example.tokens.structure(example.configs))


def test_a_library_without_a_module_is_the_importers_own(tmp_path, monkeypatch):
    (tmp_path / "tested_library.py").write_text(
        "try:\n    import tested_option\nexcept ImportError:\n    tested_option = None\n"
    )
    (tmp_path / "tested_option.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    own = trees.import_without("tested_library", "tested_option")
    assert own.tested_option is None
    assert import_module("tested_library").tested_option is sys.modules.pop("tested_option")
    assert trees.import_without("tested_library", "tested_option") is sys.modules.pop(
        "tested_library"
    )
