"""Design spaces that are extreme, degenerate or wrong."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization
from chameleon_testing._conformance_cases import grid


def rng():
    return np.random.default_rng(7)


def flag(name, **more):
    return Choice(name=name, options=(False, True), **more)


def numbers(name, count, **more):
    return Choice(name=name, options=tuple(range(count)), **more)


def test_one_configuration():
    space = DesignSpace([Choice(name="mode", options=("only",))])
    assert space.size == 1
    assert space.sample(5, rng()).tolist() == [[0]]
    assert space.mutate(space.sample(1, rng()), rng()).tolist() == [[0]]
    assert space.neighbours([0]).shape == (0, 1)
    assert space.features(space.sample(1, rng())).tolist() == [[1.0]]


@pytest.mark.parametrize("knobs", [12, 24])
def test_huge_spaces_are_sampled_by_rejection(knobs):
    space = grid(*[10] * knobs, holds=lambda v: (v["k0"] == 3) & (v["k1"] == 4))
    assert space.size == 10**knobs
    sample = space.sample(300, rng())
    assert len(sample) == 300
    assert space.legal(sample).all()
    assert len(space.distinct(sample)) == 300


@pytest.mark.parametrize("knobs", [2, 12])
def test_nothing_legal(knobs):
    first = np.zeros((1, knobs), np.int32)
    space = grid(*[10] * knobs, holds=lambda v: v["k0"] < 0, first_guesses=first)
    assert space.sample(4, rng(), tries=8).shape == (0, knobs)
    assert space.neighbours([1] * knobs).shape == (0, knobs)
    assert space.first_guesses.shape == (0, knobs)
    assert space.why_illegal([1] * knobs) == "scripted"


def test_a_constraint_sees_only_what_met_those_before_it():
    seen = []
    space = DesignSpace(
        [numbers("divisor", 4)],
        constraints=[
            Constraint(reason="zero", holds=lambda v: v["divisor"] > 0),
            Constraint(
                reason="odd", holds=lambda v: seen.extend(v["divisor"]) or v["divisor"] % 2 == 0
            ),
        ],
    )
    assert space.legal(np.arange(4)[:, None]).tolist() == [False, False, True, False]
    assert 0 not in seen


def test_a_constraint_may_answer_for_all_rows_at_once():
    space = grid(3, holds=lambda _: np.False_)
    assert not space.legal(np.arange(3)[:, None]).any()
    assert space.why_illegal([1]) == "scripted"


def test_small_spaces_are_sampled_evenly():
    space = grid(4, 3, holds=lambda v: v["k0"] != v["k1"])
    generator, counts = rng(), {}
    for _ in range(3000):
        key = int(space.keys(space.sample(1, generator))[0])
        counts[key] = counts.get(key, 0) + 1
    # 9 legal configurations, 333 each; five standard deviations either way.
    assert len(counts) == 9
    assert all(245 < count < 420 for count in counts.values())


def test_large_spaces_are_sampled_evenly():
    space = grid(*[8] * 7, holds=lambda v: v["k0"] <= v["k1"])
    sample = space.sample(36_000, rng())
    pairs = np.bincount(sample[:, 0] * 8 + sample[:, 1], minlength=64).reshape(8, 8)
    assert (pairs[np.tril_indices(8, -1)] == 0).all()
    # 36 legal pairs, 1000 each; five standard deviations either way.
    assert np.abs(pairs[np.triu_indices(8)] - 1000).max() < 160


def test_an_alternative_with_many_knobs_does_not_drown_the_other():
    space = DesignSpace(
        [
            Choice(name="algorithm", options=("direct", "winograd")),
            *(numbers(f"w{i}", 10, when=("algorithm", (1,))) for i in range(3)),
            *(numbers(f"k{i}", 10) for i in range(5)),
        ]
    )
    assert 0.45 < (space.sample(4000, rng())[:, 0] == 0).mean() < 0.55


def test_a_knob_under_one_that_does_not_apply_does_not_apply():
    space = DesignSpace(
        [flag("a"), numbers("b", 3, when=("a", (1,))), numbers("c", 4, when=("b", (0,)))]
    )
    assert space.canonical([[0, 2, 3]]).tolist() == [[0, 0, 0]]
    assert space.canonical([[1, 0, 3], [1, 1, 3]]).tolist() == [[1, 0, 3], [1, 1, 0]]
    assert space.why_illegal([0, 0, 3]) == "a knob that does not apply is set"
    assert len(space.sample(99, rng())) == 1 + 4 + 2


def test_start_is_canonical_distinct_and_legal():
    space = DesignSpace(
        [flag("a"), numbers("b", 3, when=("a", (1,)))],
        constraints=[Constraint(reason="b is 2", holds=lambda v: v["b"] < 2)],
        first_guesses=np.array([[1, 1], [0, 2], [0, 0], [1, 2]]),
    )
    assert space.first_guesses.tolist() == [[1, 1], [0, 0]]


def test_features_of_the_space_follow_those_of_the_knobs():
    space = DesignSpace(
        [Factorization(name="tile", extent=8, parts=2), Choice(name="order", options=("a", "b"))],
        features=DesignSpace.FeatureBlock(
            names=("area",), compute=lambda v: (v["tile"][:, 0] * v["tile"][:, 1])[:, None]
        ),
    )
    assert space.feature_names == ("tile.0", "tile.1", "order=a", "order=b", "area")
    row = space.knobs[0].index_of((2, 4))
    assert space.features(np.array([[row, 1]])).tolist() == [[1.0, 2.0, 0.0, 1.0, 8.0]]


def test_a_space_says_what_it_guesses_configurations_to_cost():
    space = grid(4, guessed_cost=lambda v: 1.0 + v["k0"])
    assert space.guessed_cost(space.values(np.array([[0], [3]]))).tolist() == [1.0, 4.0]
    assert grid(4).guessed_cost is None


def test_fingerprint_tells_spaces_apart():
    base = [Factorization(name="tile", extent=8, parts=2), flag("unroll")]
    same = DesignSpace(base).fingerprint
    assert DesignSpace(list(base)).fingerprint == same
    others = [
        DesignSpace(base[::-1]),
        DesignSpace([Factorization(name="tile", extent=16, parts=2), flag("unroll")]),
        DesignSpace([base[0], flag("vectorize")]),
        DesignSpace(base, constraints=[Constraint(reason="x", holds=lambda v: v["unroll"])]),
    ]
    assert len({same, *(space.fingerprint for space in others)}) == 5


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ([], "at least one knob"),
        ([flag("a"), flag("a")], "one name"),
        ([flag("a", when=("b", (1,))), flag("b")], "does not precede"),
        ([flag("a", when=("a", (1,)))], "does not precede"),
        ([flag("a"), flag("b", when=("a", (2,)))], "does not have"),
    ],
)
def test_wrong_spaces_are_refused(knobs, words):
    with pytest.raises(ValueError, match=words):
        DesignSpace(knobs)


@pytest.mark.parametrize("config", [[], [0], [0, 0, 0]])
def test_the_wrong_length_is_no_configuration(config):
    space = DesignSpace([flag("a"), flag("b")])
    assert "2 knob indices" in space.why_illegal(config)
    with pytest.raises(ValueError, match="argument"):
        space.decode(config)
