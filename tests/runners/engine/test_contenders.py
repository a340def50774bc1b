"""Turns of a final comparison: everyone has the same, but for those who are hopelessly slow."""

import math
from collections import Counter

import pytest
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import Contender, StageRef
from chameleon_runners._engine.comparison import ContenderState, timing_order
from chameleon_runners._engine.context import CandidateRun


def contender(name, seconds=math.inf):
    repeats = () if math.isinf(seconds) else (seconds,)
    return ContenderState(
        contender=Contender(name=name, stage=StageRef(factory="a:B"), config=(0,)),
        candidate=CandidateRun(config=(0,), slot=0, repeats=repeats),
    )


def order(*contenders, rounds):
    return [turn.contender.name for turn in timing_order(lambda: contenders, rounds)]


def test_everyone_has_a_turn_in_every_round_in_a_new_order():
    names = order(*(contender(name, 1.0) for name in "abcd"), rounds=6)
    rounds = [names[start : start + 4] for start in range(0, len(names), 4)]
    assert all(sorted(turn) == list("abcd") for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 1
    assert names == order(*(contender(name, 1.0) for name in "abcd"), rounds=6)


def test_who_is_hopelessly_slow_has_few_turns():
    counts = Counter(order(contender("a", 1.0), contender("b", 2.9), contender("c", 3.1), rounds=9))
    assert counts == {"a": 9, "b": 9, "c": 3}


def test_rounds_end_when_there_is_to_be_no_other():
    asked = []

    def has_time(done):
        asked.append(done)
        return done < 2

    active = [contender("a", 1.0), contender("b", 1.0)]
    had = [turn.contender.name for turn in timing_order(lambda: active, 5, has_time=has_time)]
    assert Counter(had) == {"a": 2, "b": 2}
    assert asked == [0, 1, 2]


def test_who_is_hopelessly_slow_has_one_turn_where_time_is_up():
    active = [contender("a", 1.0), contender("b", 3.1)]
    had = [turn.contender.name for turn in timing_order(lambda: active, 5, in_time=lambda: False)]
    assert Counter(had) == {"a": 5, "b": 1}


def test_who_fails_has_no_more_turns():
    active = [contender("a", 1.0), contender("b", 1.0)]
    had = []
    for turn in timing_order(lambda: tuple(active), 5):
        had.append(turn.contender.name)
        if len(active) > 1:
            active.remove(turn)
    assert Counter(had[2:]) == {active[0].contender.name: 4}


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ({"status": "failed", "kind": "invalid", "message": "no"}, FailureKind.INVALID, "no"),
        ({"status": "error", "message": "cannot"}, FailureKind.BUILD_ERROR, "cannot"),
    ],
)
def test_one_that_was_not_built(reply, kind, words):
    first = contender("a")
    first.record_build_failure(reply)
    assert (first.measurement.failure, first.measurement.message) == (kind, words)


def test_one_without_a_time_was_interrupted():
    first = contender("a")
    assert "interrupted" in first.measurement.message
    first.candidate.add_turn([2.0, 2.0])
    assert first.measurement.ok
