"""Shares of the variance that knobs explain, and the map of a space."""

import numpy as np
import pytest
from chameleon_bench._pages.run_record import Categories, Measured
from chameleon_bench._pages.search_plots import LEAST, knob_shares, projected
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays


def _measured(configs, seconds):
    configs, seconds = np.asarray(configs), np.asarray(seconds, float)
    none = Categories(labels=[], codes=np.full(len(seconds), -1))
    knobs = {
        f"k{at}": Categories(labels=[str(n) for n in range(int(column.max()) + 1)], codes=column)
        for at, column in enumerate(configs.T)
    }
    return Measured(
        configs=configs,
        seconds=seconds,
        spread=np.zeros(len(seconds)),
        at=np.arange(len(seconds), dtype=float),
        origins=none,
        scores=np.full(len(seconds), np.nan),
        failures=none,
        messages=[""] * len(seconds),
        knobs=knobs,
    )


def test_a_knob_that_decides_alone_explains_everything():
    configs = np.array([(a, b) for a in range(4) for b in range(5)])
    shares = knob_shares(_measured(configs, np.exp(configs[:, 0])))
    assert list(shares) == ["k0", "k1"]
    assert shares["k0"] == pytest.approx(1.0)
    assert shares["k1"] == 0.0


def test_many_values_explain_nothing_by_chance():
    rng = np.random.default_rng(0)
    # 40 groups of 100 random times: the plain share of variance would be about 0.4.
    configs = rng.integers(40, size=(100, 1))
    assert knob_shares(_measured(configs, rng.lognormal(size=100)))["k0"] < 0.2


def test_failures_do_not_count_and_too_little_says_nothing():
    configs = np.arange(LEAST)[:, None] % 2
    seconds = np.where(configs[:, 0] == 0, 1.0, 2.0)
    assert knob_shares(_measured(configs, seconds))["k0"] == pytest.approx(1.0)
    seconds[0] = np.inf
    assert knob_shares(_measured(configs, seconds)) == {}
    assert knob_shares(_measured(configs, np.ones(LEAST))) == {}


@given(
    arrays.arrays(
        np.int64, st.tuples(st.integers(0, 20), st.integers(0, 6)), elements=st.integers(0, 9)
    )
)
def test_any_configurations_have_a_place_and_equal_ones_the_same(configs):
    places, share = projected(configs)
    assert places.shape == (len(configs), 2)
    assert np.isfinite(places).all()
    assert 0.0 <= share <= 1.0 + 1e-9
    again, _ = projected(np.concatenate([configs, configs]))
    np.testing.assert_allclose(again[: len(configs)], again[len(configs) :])


def test_a_plane_is_kept_whole():
    places, share = projected(np.array([(a, 3, b) for a in range(5) for b in range(4)]))
    assert share == pytest.approx(1.0)
    assert len({tuple(np.round(at, 9)) for at in places}) == 20
