"""Properties of design spaces, on random ones."""

import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization
from hypothesis import given, settings
from hypothesis import strategies as st

seeds = st.integers(0, 2**32 - 1)


@st.composite
def knob_lists(draw, max_knobs=6):
    knobs = []
    for i in range(draw(st.integers(1, max_knobs))):
        name = f"k{i}"
        when = None
        if knobs and draw(st.booleans()):
            parent = draw(st.sampled_from(knobs))
            indices = draw(st.sets(st.integers(0, parent.cardinality - 1), max_size=3))
            when = (parent.name, tuple(sorted(indices)))
        kind = draw(st.sampled_from(["choice", "strings", "flag", "tile"]))
        if kind == "choice":
            size = draw(st.integers(1, 9))
            knobs.append(Choice(name=name, options=tuple(range(size)), when=when))
        elif kind == "strings":
            knobs.append(Choice(name=name, options=("a", "b", "c"), when=when))
        elif kind == "flag":
            knobs.append(Choice(name=name, options=(False, True), when=when))
        else:
            knobs.append(
                Factorization(
                    name=name,
                    extent=draw(st.integers(1, 24)),
                    parts=draw(st.integers(1, 3)),
                    when=when,
                )
            )
    return knobs


@st.composite
def design_spaces(draw):
    knobs = draw(knob_lists())
    constraints = []
    if draw(st.booleans()):
        first, barred = knobs[0].name, draw(st.sampled_from(["1", "2", "a", "True"]))
        constraints.append(
            Constraint(
                reason="barred",
                holds=lambda v: v[first].reshape(len(v[first]), -1)[:, 0].astype(str) != barred,
            )
        )
    if draw(st.booleans()):
        names = [knob.name for knob in knobs if knob.cardinality > 1]

        def parity(values):
            total = np.zeros(len(values[knobs[0].name]), np.int64)
            for name in names:
                chosen = values[name]
                if chosen.dtype.kind in "iub":
                    total += chosen.reshape(len(chosen), -1)[:, -1].astype(np.int64)
            return total % 3 != 1

        constraints.append(Constraint(reason="parity", holds=parity))
    return DesignSpace(knobs, constraints=constraints)


def raw(space, rng, count=40):
    """Index vectors in range, canonical or not."""
    return rng.integers(0, space.cardinalities, (count, len(space.knobs)), dtype=np.int32)


def active_by_hand(space, row):
    """Which knobs apply in one configuration, knob by knob."""
    active = {}
    for knob, _ in zip(space.knobs, row, strict=True):
        if knob.when is None:
            active[knob.name] = True
        else:
            parent, indices = knob.when
            active[knob.name] = active[parent] and row[space.index[parent]] in indices
    return [active[knob.name] for knob in space.knobs]


@given(design_spaces(), seeds)
def test_keys_identify(space, seed):
    configs = raw(space, np.random.default_rng(seed))
    assert (space.from_keys(space.keys(configs)) == configs).all()
    distinct = space.distinct(configs)
    assert len(distinct) == len({tuple(row) for row in configs.tolist()})
    assert distinct[0].tolist() == configs[0].tolist()


@given(design_spaces(), seeds)
def test_canonical_clears_exactly_what_does_not_apply(space, seed):
    configs = raw(space, np.random.default_rng(seed))
    canonical = space.canonical(configs.astype(np.int64))
    assert canonical.dtype == np.int32
    for before, after in zip(configs.tolist(), canonical.tolist(), strict=True):
        active = active_by_hand(space, before)
        assert after == [i if on else 0 for i, on in zip(before, active, strict=True)]
    assert (space.canonical(canonical) == canonical).all()


@given(design_spaces(), seeds)
def test_legal_agrees_with_why_illegal(space, seed):
    configs = raw(space, np.random.default_rng(seed), 25)
    configs[::5] += 3
    configs[1::5, 0] = -1
    verdicts = space.legal(configs)
    reasons = [space.why_illegal(row) for row in configs.tolist()]
    assert verdicts.tolist() == [reason is None for reason in reasons]
    # One at a time and all at once must agree: predicates see rows, not each other.
    assert verdicts.tolist() == [bool(space.legal(row[None])[0]) for row in configs]


@given(design_spaces(), seeds, st.integers(1, 50))
def test_samples_are_legal_distinct_and_as_many_as_there_are(space, seed, count):
    legal = int(space.legal(space.from_keys(np.arange(space.size))).sum())
    sample = space.sample(count, np.random.default_rng(seed))
    assert len(sample) == min(count, legal)
    assert space.legal(sample).all()
    assert len(space.distinct(sample)) == len(sample)
    assert (sample == space.sample(count, np.random.default_rng(seed))).all()


@given(design_spaces(), seeds)
def test_mutation_moves_one_knob_that_applies(space, seed):
    rng = np.random.default_rng(seed)
    before = space.sample(30, rng)
    after = space.mutate(before, rng)
    assert space.legal(after).all()
    for old, new in zip(before, after, strict=True):
        if (old != new).any():
            # Knobs that (un)apply because of the move are at 0; exactly one moved by itself.
            both = space.active(old[None])[0] & space.active(new[None])[0]
            assert ((old != new) & both).sum() == 1


@given(knob_lists(), seeds)
def test_without_constraints_every_mutation_moves(knobs, seed):
    space = DesignSpace(knobs)
    rng = np.random.default_rng(seed)
    before = space.sample(30, rng)
    movable = (space.active(before) & (space.cardinalities > 1)).any(axis=1)
    after = space.mutate(before.astype(np.int64), rng)
    assert after.dtype == np.int32
    assert (after != before).any(axis=1).tolist() == movable.tolist()


@given(design_spaces(), seeds)
def test_neighbours_are_all_legal_single_steps(space, seed):
    for config in space.sample(5, np.random.default_rng(seed)):
        expected = set()
        for column in range(len(space.knobs)):
            for step in (-1, 1):
                near = config.copy()
                near[column] += step
                if 0 <= near[column] < space.cardinalities[column]:
                    near = space.canonical(near)[0]
                    if space.legal(near[None])[0] and (near != config).any():
                        expected.add(tuple(near.tolist()))
        result = [tuple(row) for row in space.neighbours(config).tolist()]
        assert set(result) == expected
        assert len(result) == len(expected)


@given(design_spaces(), seeds)
def test_features_have_a_name_each_and_tell_configurations_apart(space, seed):
    configs = space.distinct(raw(space, np.random.default_rng(seed)))
    features = space.features(configs)
    assert features.shape == (len(configs), len(space.feature_names))
    assert features.dtype == np.float32
    assert all(knob.feature_table.dtype == np.float32 for knob in space.knobs)
    assert np.isfinite(features).all()
    assert len(set(space.feature_names)) == len(space.feature_names)
    # Every knob with a choice has features that tell its choices apart.
    assert len(np.unique(features, axis=0)) == len(configs)


@given(design_spaces(), seeds)
@settings(max_examples=30)
def test_values_agree_with_decode(space, seed):
    configs = raw(space, np.random.default_rng(seed), 5)
    values = space.values(configs)
    for row, config in enumerate(configs.tolist()):
        for name, plain in space.decode(config).items():
            chosen = values[name][row].tolist()
            assert (tuple(chosen) if isinstance(plain, tuple) else chosen) == plain
