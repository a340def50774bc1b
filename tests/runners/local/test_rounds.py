"""Which candidates are timed again, how often, and which repeats count, with scripted times."""

import math

import attrs
import pytest
from chameleon_core._measurement import FailureKind
from chameleon_runners._core_meter import CoreMeter
from chameleon_runners._engine.context import CandidateRun
from chameleon_runners._local.disturbance import LocalDisturbance, count_same_order
from chameleon_runners._local.job_run import Rounds
from chameleon_runners._local.options import LocalOptions
from faults import Fault, config
from hypothesis import given
from hypothesis import strategies as st

from ..conftest import job  # noqa: TID252 - tests are no package

OPTIONS = LocalOptions(leaders=4, leader_margin=0.05, leader_rounds=20, slow_factor=2.0)


def timed(name, *repeats):
    return CandidateRun(config=(name,), slot=name, repeats=repeats)


def admitted(*candidates, best=math.inf, options=OPTIONS):
    rounds = Rounds(options, best)
    return rounds, [lost for candidate in candidates for lost in rounds.admit(candidate)]


def test_hopeless_candidates_are_not_held():
    slow, fast = timed(0, 2.1), timed(1, 1.0)
    rounds, dropped = admitted(slow, fast)
    assert dropped == [slow]
    assert rounds.candidates == [fast]


def test_candidates_are_hopeless_next_to_an_earlier_best():
    candidate = timed(0, 2.1)
    rounds, dropped = admitted(candidate, best=1.0)
    assert dropped == [candidate]
    assert rounds.candidates == []


def test_no_more_are_held_than_may_be():
    rounds, dropped = admitted(*[timed(n, 1.0 + 0.01 * n) for n in (3, 1, 4, 0, 2, 5)])
    assert [candidate.slot for candidate in rounds.candidates] == [0, 1, 2, 3]
    assert sorted(lost.slot for lost in dropped) == [4, 5]


def test_a_candidate_whose_first_timing_was_disturbed_is_found_again():
    disturbed, best = timed(0, 1.5, 1.6, 1.5), timed(1, 1.0, 1.0, 1.0)
    rounds, _ = admitted(disturbed, best)
    truth = {0: 0.98, 1: 1.0}
    done = list(rounds.run(lambda c: c.add_turn([truth[c.slot]]), lambda: False))
    assert {c.slot: c.succeeded().cost for c in done} == truth


def test_candidates_that_are_slower_leave_after_few_rounds():
    slow, best = timed(0, 1.5, 1.5, 1.5), timed(1, 1.0, 1.0, 1.0)
    rounds, _ = admitted(slow, best)
    asked = {0: 0, 1: 0}

    def time_again(candidate):
        asked[candidate.slot] += 1
        candidate.add_turn([candidate.repeats[0]])

    assert [c.slot for c in rounds.run(time_again, lambda: False)] == [0, 1]
    assert asked[0] == 3
    assert asked[0] < asked[1] < 8


def test_a_candidate_disturbed_at_first_and_in_the_first_round_is_looked_at_again():
    unlucky, best = timed(0, 1.95, 1.95, 1.95), timed(1, 1.0, 1.0, 1.0)
    rounds, _ = admitted(unlucky, best)

    def time_again(candidate):
        truth = {0: 0.99, 1: 1.0}[candidate.slot]
        candidate.add_turn([1.95 * truth if not candidate.turns else truth])

    done = {c.slot: c.succeeded().cost for c in rounds.run(time_again, lambda: False)}
    assert done == {0: 0.99, 1: 1.0}


@pytest.mark.parametrize(
    ("others", "rounds", "most"), [(0, 4, 8), (7, 4, 8), (15, 8, 16), (63, 14, 20)]
)
def test_small_batches_have_few_rounds(others, rounds, most):
    undisturbed, noisy = timed(0, 1.0), timed(1, 1.0)
    slow = [timed(2 + number, 1.9) for number in range(others)]
    held, _ = admitted(noisy, undisturbed, *slow[1:])

    def time_again(candidate):
        noise = 0.1 * len(candidate.turn_repeats) * (candidate is noisy)
        candidate.add_turn([candidate.repeats[0] + noise])

    list(held.run(time_again, lambda: False))
    assert len(undisturbed.turn_repeats) == rounds
    assert len(noisy.turn_repeats) == most


def test_a_candidate_that_fails_again_leaves():
    broken, best = timed(0, 1.0), timed(1, 1.0)
    rounds, _ = admitted(broken, best)

    def time_again(candidate):
        if candidate is broken:
            candidate.failure = candidate.failed(FailureKind.CRASH, "it crashed")
        else:
            candidate.add_turn([1.0])

    first, second = rounds.run(time_again, lambda: False)
    assert first is broken
    assert second is best


def test_a_candidate_with_missing_repeats_counts_its_first_timing():
    lonely, best = timed(0, 1.0, 1.01, 1.02), timed(1, 1.0)
    rounds, _ = admitted(lonely, best)

    def time_again(candidate):
        if candidate is best or not lonely.turn_repeats:
            candidate.add_turn([1.2])

    list(rounds.run(time_again, lambda: False))
    assert lonely.succeeded().seconds == (1.0, 1.01, 1.02)


@pytest.mark.parametrize(("turns", "counts"), [(1, (1.0, 1.01, 1.02)), (2, (1.2, 1.2))])
def test_the_first_timing_counts_beside_a_single_round(turns, counts):
    candidate = timed(0, 1.0, 1.01, 1.02)
    rounds, _ = admitted(candidate, options=attrs.evolve(OPTIONS, leader_rounds=turns))
    list(rounds.run(lambda c: c.add_turn([1.2]), lambda: False))
    assert candidate.succeeded().seconds == counts


def test_nothing_is_timed_after_a_stop():
    rounds, _ = admitted(timed(0, 1.0), timed(1, 1.0))
    asked = []
    assert len(list(rounds.run(asked.append, lambda: True))) == 2
    assert asked == []


def test_repeats_of_a_turn_that_was_disturbed_do_not_count_beside_calm_ones():
    candidate = timed(0, 9.0)
    candidate.add_turn([], [0.5, 0.5, 0.5])
    assert candidate.succeeded().cost == 0.5, "they are all there is"
    candidate.add_turn([1.0, 1.0, 1.0])
    assert candidate.succeeded().seconds == (1.0, 1.0, 1.0)
    candidate.merge_turns()
    assert candidate.repeats == (1.0, 1.0, 1.0)
    assert not candidate.disturbed


def test_rounds_go_on_while_all_repeats_are_disturbed():
    undisturbed, shared = timed(0, 1.0), timed(1, 1.0)
    rounds, _ = admitted(undisturbed, shared)

    def time_again(candidate):
        candidate.add_turn(*([[], [1.0]] if candidate is shared else [[1.0]]))

    list(rounds.run(time_again, lambda: False))
    assert len(undisturbed.turn_repeats) < len(shared.disturbed) == 8


def test_leaders_are_ranked_as_they_leave():
    slow, swapped, best = timed(0, 1.4), timed(1, 1.01), timed(2, 1.02)
    rounds, _ = admitted(slow, swapped, best)
    truth = {0: 1.5, 1: 1.04, 2: 1.0}
    list(rounds.run(lambda c: c.add_turn([truth[c.slot]] * 3), lambda: False))
    assert sorted(rounds.repeat_timings) == [(1.01, 1.04), (1.02, 1.0), (1.4, 1.5)]
    disturbance = LocalDisturbance(CoreMeter([]))
    disturbance.add_repeat_timings(rounds.repeat_timings)
    assert (disturbance.total.pairs, disturbance.total.kept) == (3, 2)


COSTS = st.lists(st.floats(1e-6, 1.0), unique=True, max_size=12)


@given(COSTS)
def test_the_same_times_keep_their_order_and_opposite_ones_do_not(costs):
    pairs, agreeing = count_same_order([(cost, cost) for cost in costs])
    assert pairs == agreeing <= len(costs) * (len(costs) - 1) // 2
    assert count_same_order([(-cost, cost) for cost in costs]) == (pairs, 0)


@given(st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(0.99, 1.0)), max_size=8))
def test_times_that_cannot_be_told_apart_have_no_order(candidates):
    assert count_same_order(candidates) == (0, 0)


def test_a_slow_candidate_gets_one_repeat(runner):
    [best] = runner.measure(job([config(Fault.NONE)]))
    slow = attrs.evolve(job([config(Fault.SLOW)]), best_seconds=best.cost)
    [measurement] = runner.measure(slow)
    assert measurement.ok
    assert len(measurement.seconds) == 1


def test_the_batch_that_decides_has_more_rounds():
    rounds = Rounds(OPTIONS, math.inf, final=True)
    candidates = [timed(number, 1.0) for number in range(2)]
    for candidate in candidates:
        rounds.admit(candidate)
    turns = []

    def time_again(candidate):
        turns.append(candidate.slot)
        candidate.add_turn([1.0])

    assert len(list(rounds.run(time_again, lambda: False))) == 2
    assert [turns.count(slot) for slot in (0, 1)] == [14, 14]
