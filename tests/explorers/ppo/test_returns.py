"""Generalised advantage estimation against what is counted by hand and by a slow definition."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from chameleon_explorers._ppo.learning import advantages, standardise  # noqa: E402
from hypothesis import example, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402


def column(*values):
    return torch.tensor([[value] for value in values], dtype=torch.float64)


def test_nothing_counts_after_the_end_of_an_episode():
    # The second step ends it: 0 - 2 = -2; before that 1 + .5 * 2 - 1 + .25 * -2 = .5.
    result = advantages(
        column(1, 0, 2), column(1, 2, 4, 6), column(1, 0, 1), discount=0.5, decay=0.5
    )
    assert result.flatten().tolist() == [0.5, -2.0, 1.0]


def by_definition(rewards, values, not_done, discount, decay):
    """Equation 16 as it stands: a sum over the steps ahead, cut where the episode ends."""
    steps, episodes = rewards.shape
    out = np.zeros((steps, episodes))
    for episode in range(episodes):
        for begin in range(steps):
            weight = 1.0
            for step in range(begin, steps):
                after = values[step + 1, episode] * not_done[step, episode]
                difference = rewards[step, episode] + discount * after - values[step, episode]
                out[begin, episode] += weight * difference
                weight *= discount * decay
                if not not_done[step, episode]:
                    break
    return out


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_it_agrees_with_its_definition(steps, episodes, discount, decay, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(steps, episodes))
    values = rng.normal(size=(steps + 1, episodes))
    not_done = (rng.random((steps, episodes)) < 0.8).astype(float)
    result = advantages(
        *map(torch.from_numpy, (rewards, values, not_done)), discount=discount, decay=decay
    )
    assert np.allclose(result.numpy(), by_definition(rewards, values, not_done, discount, decay))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20))
@example([86.2179423184381] * 3)
def test_standardised_has_mean_0_and_deviation_1(values):
    result = standardise(torch.tensor(values, dtype=torch.float64))
    assert torch.isfinite(result).all()
    assert abs(float(result.mean())) < 1e-6
    if np.std(values) > 1e-3:
        assert float(result.square().mean()) == pytest.approx(1.0, rel=1e-3)


@given(
    st.floats(-1e4, 1e4, width=32),
    st.integers(1, 600),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_equal_advantages_are_zeros_whatever_the_rounding_of_their_mean(value, count, dtype):
    assert not standardise(torch.full((count,), value, dtype=dtype)).any()
