"""What is known of ``ppo`` without importing torch."""

import pytest
from chameleon_explorers._ppo.options import PPOOptions
from chameleon_explorers._presets import PAPER, PPO_PAPER, PPO_RELEASE, PUBLISHED, RELEASE
from chameleon_explorers.hooks import chameleon_explorers, chameleon_presets


def test_the_presets_are_registered_and_differ():
    assert all(preset in chameleon_presets() for preset in PUBLISHED)
    assert PAPER.pipeline["sampler"]["step"] == 1
    assert RELEASE.pipeline["sampler"]["knobs"] == "widest"
    assert PPO_RELEASE["clip"] == 0.2


def test_the_record_names_what_exists():
    (record,) = (record for record in chameleon_explorers() if record.name == "ppo")
    assert record.options is PPOOptions
    assert record.factory == "chameleon_explorers._ppo.explorer:PPOExplorer"


@pytest.mark.parametrize("preset", [PPO_PAPER, PPO_RELEASE], ids=["paper", "release"])
def test_presets_name_every_option(preset):
    named = {key: value for key, value in preset.items() if key != "name"}
    options = PPOOptions(**named)
    assert set(named) == {field.name for field in PPOOptions.__attrs_attrs__}
    assert all(getattr(options, key) == value for key, value in named.items())


def test_the_paper_preset_is_table_9():
    expected = {
        "learning_rate": 1e-3,
        "discount": 0.9,
        "gae": 0.99,
        "epochs": 3,
        "clip": 0.3,
        "value_coefficient": 1.0,
        "entropy": 0.1,
        "episodes": 128,
        "steps": 500,
    }
    assert expected.items() <= PPO_PAPER.items()


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"horizon": 0},
        {"reward": "speed"},
        {"network": "transformer"},
        {"discount": 1.5},
        {"clip": 0.0},
        {"minibatch": 0},
        {"restarts": 2.0},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        PPOOptions(**wrong)
