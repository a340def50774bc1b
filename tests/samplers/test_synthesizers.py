"""What takes the place of samples that cannot be measured."""

import itertools

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import Candidates, Visited
from chameleon_samplers._options import CrossoverOptions, ModeOptions
from chameleon_samplers._synthesizers import CrossoverSynthesizer, ModeSynthesizer, _by_frequency
from chameleon_testing._conformance_cases import context_of, grid, observe
from hypothesis import given
from hypothesis import strategies as st


def rows(*configs):
    return np.array(configs, np.int32)


CANDIDATES = rows([1, 2, 0], [1, 2, 3], [1, 0, 3], [4, 2, 3], [1, 4, 1])
"""The most frequent choices are 1, 2 and 3."""


def refine(synthesizer, space, batch, *, visited=()):
    seen = Visited(space)
    if len(visited):
        seen.add(rows(*visited))
    plan = Candidates(configs=CANDIDATES, scores=np.zeros(len(CANDIDATES)))
    return synthesizer.refine(batch, plan, seen).tolist()


def mode(space, **options):
    return ModeSynthesizer(ModeOptions(**options), context_of(space))


@pytest.mark.parametrize(
    ("batch", "refined", "visited"),
    [
        ([[0, 0, 0], [4, 4, 4]], [[0, 0, 0], [1, 2, 3]], [[4, 4, 4]]),
        ([[4, 4, 0]], [[1, 2, 3]], []),
        ([[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [1, 2, 3]], []),
        ([[3, 3, 3], [0, 0, 0]], [[3, 3, 3], [0, 0, 0]], []),
    ],
    ids=["visited", "illegal", "repeated", "good"],
)
def test_the_mode_takes_the_place_of_what_cannot_be_measured(batch, refined, visited):
    space = grid(5, 5, 5, holds=lambda v: (v["k0"] + v["k1"] < 8) | (v["k2"] == 4))
    assert refine(mode(space), space, rows(*batch), visited=visited) == refined


def test_where_the_mode_was_measured_the_next_most_frequent_comes():
    space = grid(5, 5, 5)
    (refined,) = refine(mode(space), space, rows([4, 4, 4]), visited=[[4, 4, 4], [1, 2, 3]])
    # One knob moved to its second most frequent choice, each of which one candidate has.
    assert (np.array(refined) != [1, 2, 3]).sum() == 1
    assert refined in ([4, 2, 3], [1, 0, 3], [1, 4, 3], [1, 2, 0], [1, 2, 1])


def test_where_the_mode_is_illegal_the_next_most_frequent_comes():
    space = grid(5, 5, 5, holds=lambda v: (v["k0"] != 1) | (v["k1"] != 2))
    (refined,) = refine(mode(space), space, rows([1, 2, 4]))
    assert refined in ([4, 2, 3], [1, 0, 3], [1, 4, 3])


@pytest.mark.parametrize(
    ("measured", "failing", "mode_then"),
    [
        # Once is enough for a choice to have never worked.
        ([[1, 0, 0], [0, 2, 3]], [True, False], [4, 2, 3]),
        ([[1, 0, 0], [1, 3, 3], [0, 2, 3]], [True, True, False], [4, 2, 3]),
        ([[1, 0, 0], [1, 3, 3]], [True, False], [1, 2, 3]),
    ],
)
def test_a_choice_that_never_worked_is_no_mode(measured, failing, mode_then):
    space = grid(5, 5, 5)
    synthesizer = mode(space)
    synthesizer.observe(observe(space, rows(*measured), failing=np.array(failing)))
    assert refine(synthesizer, space, rows([4, 4, 4]), visited=[[4, 4, 4]]) == [mode_then]


def test_several_replacements_differ_and_come_in_order_of_frequency():
    space = grid(5, 5, 5)
    batch = rows([0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0])
    refined = refine(mode(space), space, batch)
    assert refined[:2] == [[0, 0, 0], [1, 2, 3]]
    assert len({tuple(row) for row in refined}) == 4


@given(
    st.lists(
        st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=4), min_size=1, max_size=4
    )
)
def test_combinations_come_once_each_in_order_of_preference(tables):
    picks = list(_by_frequency([np.array(table) for table in tables]))
    assert sorted(picks) == list(itertools.product(*(range(len(table)) for table in tables)))
    sums = [
        sum(table[i] for table, i in zip(tables, combination, strict=True)) for combination in picks
    ]
    assert sums == sorted(sums, reverse=True)


def test_choices_that_no_candidate_has_come_after_those_that_some_have():
    space = grid(3, 3)
    plan = Candidates(configs=rows([0, 0], [0, 0], [0, 1]), scores=np.zeros(3))
    seen = Visited(space)
    seen.add(rows([0, 0]))
    refined = mode(space).refine(rows(*[[0, 0]] * 9), plan, seen).tolist()
    assert refined[0] == [0, 1]
    # One that nobody has beside what most have, then beside what some have, then two of them.
    assert sorted(refined[1:4]) == [[0, 2], [1, 0], [2, 0]]
    assert sorted(refined[4:6]) == [[1, 1], [2, 1]]
    assert sorted(refined[6:]) == [[1, 2], [2, 2]]


def test_a_share_of_the_batch_can_be_given_up():
    space = grid(5, 5, 5)
    batch = rows([3, 3, 3], [0, 0, 0], [2, 1, 0], [0, 4, 2])
    refined = refine(mode(space, share=0.5), space, batch)
    assert refined[:3] == [[3, 3, 3], [0, 0, 0], [1, 2, 3]]
    assert len(refined) == 4


def test_the_search_for_combinations_is_bounded():
    asked = 0

    def nothing_but_zero(values):
        nonlocal asked
        asked += len(values["k0"])
        return values["k0"] + values["k1"] + values["k2"] == 0

    space = grid(50, 50, 50, holds=nothing_but_zero)
    asked = 0
    assert refine(mode(space, tries=128), space, rows([0, 0, 0], [1, 1, 1])) == [[0, 0, 0]]
    assert asked < 2 * 128


def test_a_space_with_nothing_left_gives_a_smaller_batch():
    space = grid(1)
    synthesizer = ModeSynthesizer(ModeOptions(), context_of(space))
    seen = Visited(space)
    seen.add(rows([0]))
    plan = Candidates(configs=rows([0]), scores=np.zeros(1))
    assert synthesizer.refine(rows([0]), plan, seen).shape == (0, 1)


def crossover(space, configs, costs, **options):
    """A synthesizer that knows the costs of some configurations; infinite ones failed."""
    synthesizer = CrossoverSynthesizer(CrossoverOptions(**options), context_of(space))
    observations = observe(space, configs, failing=np.isinf(np.array(costs)))
    synthesizer.observe(attrs.evolve(observations, costs=np.array(costs)))
    return synthesizer


def test_children_have_the_knobs_of_the_fastest():
    space = grid(9, 9, 9, 9)
    fast = rows([1, 1, 1, 1], [2, 2, 2, 2])
    known = np.concatenate([rows([7, 7, 7, 7], [8, 8, 8, 8]), fast])
    synthesizer = crossover(space, known, [2.0, np.inf, 1.0, 1.1], share=0.5, parents=2)
    batch = rows(*[[0, 0, 0, i] for i in range(8)])
    refined = refine(synthesizer, space, batch, visited=known.tolist())
    assert refined[:4] == batch[:4].tolist()
    assert len(refined) == 8
    mixed = {c for c in itertools.product((1, 2), repeat=4) if len(set(c)) > 1}
    assert {tuple(row) for row in refined[4:]} <= mixed


@pytest.mark.parametrize("known", [0, 1])
def test_without_two_parents_the_batch_stays(known):
    space = grid(5, 5, 5)
    configs = rows(*[[1, 1, 1]] * known).reshape(-1, 3)
    synthesizer = crossover(space, configs, [1.0] * known, share=1.0)
    batch = rows([3, 3, 3], [0, 0, 0])
    assert refine(synthesizer, space, batch) == batch.tolist()


def test_parents_too_alike_leave_the_batch_as_large_as_it_was():
    space = grid(5, 5, 5)
    synthesizer = crossover(space, rows([1, 1, 1], [1, 1, 2]), [1.0, 1.1], share=1.0)
    batch = rows([3, 3, 3], [0, 0, 0])
    assert refine(synthesizer, space, batch, visited=[[1, 1, 1], [1, 1, 2]]) == batch.tolist()
