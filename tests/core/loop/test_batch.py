"""A batch knows what is missing of it, and forgets nothing that arrives."""

from __future__ import annotations

import pytest
from chameleon_core.loop.round.batch import Batch
from chameleon_core.measurement import Measurement
from hypothesis import given
from hypothesis import strategies as st

CONFIGS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, max_size=12)


def measured(configs):
    return {config: Measurement(config=config, seconds=(1e-3,)) for config in configs}


@given(CONFIGS, st.integers(0, 12), st.integers(0, 15), st.randoms(use_true_random=False))
def test_every_configuration_is_stored_missing_or_left_out(configs, stored, limit, order):
    known = configs[::2][:stored]
    batch = Batch(configs, stored=measured(known), origins={})
    assert (batch.stored, batch.size) == (len(known), len(configs))
    batch.shorten(limit)
    assert batch.size == max(len(known), min(limit, len(configs)))
    asked = batch.missing
    assert asked == tuple(c for c in configs if c not in known)[: len(asked)]
    batch.submit(10.0)
    arriving = list(measured(asked).values())
    order.shuffle(arriving)
    for seconds, measurement in enumerate(arriving, 1):
        batch.arrive(measurement, 10.0 + seconds)
        assert batch.seconds == seconds
    assert not batch.missing
    # Proposal order, whatever the order of arrival.
    expected = [config for config in configs if config in known or config in asked]
    assert [one.config for one in batch.measurements] == expected


def test_what_is_not_missing_cannot_arrive():
    batch = Batch([(0,), (1,)], stored=measured([(0,)]), origins={})
    assert not batch.submitted
    batch.submit(0.0)
    assert batch.submitted
    for config in ((0,), (2,)):
        with pytest.raises(ValueError, match="not in list"):
            batch.arrive(Measurement(config=config, seconds=(1e-3,)), 1.0)
