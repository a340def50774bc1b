"""What networks see of a configuration."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_explorers._ppo.states import SUMMARY_WIDTH, TokenStates, VectorStates
from chameleon_testing._conformance_cases import spaces, tiled_space


def encode(encoder, configs, moves=None, summary=None):
    moves = np.zeros(configs.shape, np.int8) if moves is None else moves
    summary = np.zeros((len(configs), SUMMARY_WIDTH), np.float32) if summary is None else summary
    return encoder.encode(configs, moves, summary)


def test_the_vector_is_index_over_cardinality():
    space = DesignSpace([Choice(name=f"k{n}", options=tuple(range(n))) for n in (4, 10, 1)])
    result = encode(VectorStates(space), np.array([[3, 5, 0]], np.int32))
    assert result.tolist() == [[0.75, 0.5, 0.0]]


@pytest.mark.parametrize("name", spaces())
@pytest.mark.parametrize("kind", [VectorStates, TokenStates])
def test_states_have_the_shape_they_say_and_are_finite(name, kind):
    space = spaces()[name]
    encoder = kind(space)
    configs = space.sample(32, np.random.default_rng(0))
    result = encode(encoder, configs)
    assert result.shape == (len(configs), *encoder.shape)
    assert result.dtype == np.float32
    assert np.isfinite(result).all()
    assert np.abs(result).max(initial=0) < 10


def test_tokens_of_all_spaces_have_one_width():
    assert len({TokenStates(space).shape[-1] for space in spaces().values()}) == 1


def test_tokens_tell_configurations_moves_and_standings_apart():
    space = tiled_space()
    encoder = TokenStates(space)
    configs = space.sample(200, np.random.default_rng(0))
    states = encode(encoder, configs)
    assert len(np.unique(states.reshape(len(states), -1), axis=0)) == len(configs)
    first = configs[:1]
    moved = encode(encoder, first, np.ones(first.shape, np.int8))
    standing = encode(encoder, first, summary=np.ones((1, SUMMARY_WIDTH), np.float32))
    assert (moved != states[:1]).any()
    assert (standing != states[:1]).any()


def test_a_token_is_the_same_wherever_its_knob_is():
    near, far = (Choice(name=name, options=tuple(range(7))) for name in ("near", "far"))
    first = encode(TokenStates(DesignSpace([near, far])), np.array([[2, 5]], np.int32))
    second = encode(TokenStates(DesignSpace([far, near])), np.array([[5, 2]], np.int32))
    assert (first[0, 0] == second[0, 1]).all()
    assert (first[0, 1] == second[0, 0]).all()
    assert (first[0, 0] != first[0, 1]).any()
