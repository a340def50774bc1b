"""The presets name stages and options that exist."""

import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_cost_models import hooks as cost_models
from chameleon_explorers import hooks as explorers
from chameleon_explorers._no_model import NoCostModel
from chameleon_explorers._presets import AUTOTVM, DEFAULT, MODEL_FREE, PRESETS
from chameleon_samplers import hooks as samplers
from chameleon_testing._conformance_cases import context_of, observe, tiled_space

RECORDS = {
    "explorer": [*explorers.chameleon_explorers()],
    "cost_model": [*cost_models.chameleon_cost_models(), *explorers.chameleon_cost_models()],
    "sampler": [*samplers.chameleon_samplers()],
    "synthesizer": [*samplers.chameleon_synthesizers()],
}

EVERY = explorers.chameleon_presets()


def stage(preset, section):
    """The name and the options of a preset's stage."""
    value = preset.pipeline[section]
    named = {"name": value} if isinstance(value, str) else dict(value)
    return named.pop("name"), named


@pytest.mark.parametrize("preset", EVERY, ids=lambda preset: preset.name)
@pytest.mark.parametrize("section", RECORDS)
def test_stages_exist_and_take_the_options(preset, section):
    name, values = stage(preset, section)
    (record,) = (record for record in RECORDS[section] if record.name == name)
    options = record.options(**values)
    assert all(getattr(options, key) == value for key, value in values.items())


def test_presets_have_names_of_their_own():
    names = {preset.name for preset in EVERY}
    assert len(names) == len(EVERY)
    assert {"default", "autotvm", "local", "droplet", "genetic"} <= names
    assert all(preset in EVERY for preset in PRESETS)


def test_searches_without_a_model_pay_for_none_and_measure_in_their_own_order():
    for preset in MODEL_FREE:
        assert preset.pipeline["cost_model"] == "none"
        assert stage(preset, "sampler") == ("greedy", {"epsilon": 0.0})


def test_no_model_never_says_anything():
    model = NoCostModel(NoOptions(), context_of(tiled_space()))
    model.fit(observe(tiled_space(), tiled_space().first_guesses))
    assert not model.trained
    with pytest.raises(RuntimeError, match="no model"):
        model.predict(tiled_space().first_guesses)


def test_autotvm_is_what_was_published():
    explorer = stage(AUTOTVM, "explorer")[1]
    assert (explorer["chains"], explorer["steps"], explorer["early_stop"]) == (128, 500, 50)
    model = stage(AUTOTVM, "cost_model")[1]
    assert (model["max_depth"], model["learning_rate"], model["gamma"]) == (3, 0.3, 1e-4)
    assert AUTOTVM.pipeline["budget"] == {"measurements": 1000, "batch_size": 64, "plan_size": 64}


def test_both_presets_cover_the_same_keys():
    assert DEFAULT.pipeline.keys() == AUTOTVM.pipeline.keys()
