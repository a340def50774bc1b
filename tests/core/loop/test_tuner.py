"""Ask and tell of one task."""

import attrs
import numpy as np
import pytest
from chameleon_core import plugin_api as stages
from chameleon_core._loop.round.batch import Batch, Proposal
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._task import Task
from chameleon_core.plugin_api import Choice, DesignSpace
from hypothesis import given
from hypothesis import strategies as st


def test_the_first_batch_is_start_then_random(grid, make_tuner):
    space = grid(9, 9, first_guesses=np.array([[3, 4], [5, 6]]))
    batch = make_tuner(space).ask().configs
    assert batch[:2].tolist() == [[3, 4], [5, 6]]
    assert len(batch) == 4
    assert len(space.distinct(batch)) == 4


def test_what_did_not_fit_into_the_first_batch_comes_before_chance(grid, make_tuner, measure):
    class Idle(stages.Explorer):
        def explore(self, score, visited, count):
            return stages.Candidates(configs=np.empty((0, 2), np.int32), scores=np.empty(0))

    guesses = np.array([[i, i] for i in range(6)])
    space = grid(9, 9, first_guesses=guesses)
    tuner = make_tuner(space, explorer=Idle())
    tuner.tell(measure(space, tuner.ask().configs))
    assert tuner.ask().configs[:2].tolist() == guesses[4:].tolist()


class Knowing(stages.CostModel):
    """Trained on other tasks: the larger the knobs, the better."""

    trained = True

    def fit(self, observations):
        pass

    def predict(self, configs):
        return configs.sum(axis=1).astype(float)


def test_what_a_model_chooses_is_held_against_the_best_guess(grid, make_tuner, measure):
    bare, guessing = grid(9, 9), grid(9, 9, first_guesses=np.array([[0, 0], [0, 1]]))
    alone = make_tuner(bare, cost_model=Knowing()).ask().configs
    tuner = make_tuner(guessing, cost_model=Knowing())
    proposal = tuner.ask()
    assert proposal.configs.tolist() == [[0, 0], *alone[:-1].tolist()]
    assert proposal.origins[0, 0] is Measurement.Origin.INITIAL
    tuner.tell(measure(guessing, proposal.configs))
    assert [0, 1] not in tuner.ask().configs.tolist(), "once, not in every batch"


def test_a_single_measurement_is_the_models(grid, make_tuner):
    space = grid(9, 9, first_guesses=np.array([[0, 0]]))
    assert make_tuner(space, cost_model=Knowing(), batch_size=1).ask().configs.tolist() != [[0, 0]]


def test_no_legal_configuration(grid, make_tuner):
    space = grid(4, 4, holds=lambda v: v["k0"] > 99)
    assert make_tuner(space).ask().configs.shape == (0, 2)


@pytest.mark.parametrize("knobs", [6, 40], ids=["1e12", "1e80"])
def test_a_space_too_large_to_list(grid, make_tuner, measure, knobs):
    space = grid(*[100] * knobs)
    assert space.size == 100**knobs
    tuner = make_tuner(space)
    first = None
    for _ in range(12):
        batch = tuner.ask().configs
        assert len(batch) == 4
        tuner.tell(measure(space, batch))
        first = first or tuner.best.cost
    assert len(space.distinct(np.array([m.config for m in tuner.measurements]))) == 48
    assert tuner.best.cost < first


def test_rare_legal_configurations_are_found_near_known_ones(grid, make_tuner, measure):
    # One legal row in 1e9 is never met at random.
    rare = grid(
        *[1000] * 4,
        first_guesses=np.zeros((1, 4), np.int32),
        holds=lambda v: sum(v.values()) < 1000,
    )
    impossible = grid(
        *[1000] * 6,
        first_guesses=np.zeros((1, 6), np.int32),
        holds=lambda v: v["k0"] + v["k1"] + v["k2"] + v["k3"] + v["k4"] == 0,
    )
    for space in (rare, impossible):
        tuner = make_tuner(space)
        tuner.tell(measure(space, tuner.ask().configs))
        assert len(tuner.ask().configs) > 0


def test_the_order_of_arrival_does_not_matter(grid, make_tuner, measure):
    space = grid(8, 8, 8)
    first, other = make_tuner(space), make_tuner(space)
    for _ in range(5):
        batch = first.ask().configs
        np.testing.assert_array_equal(batch, other.ask().configs)
        outcomes = measure(space, batch)
        first.tell(outcomes)
        other.tell(outcomes[::-1])
    assert first.measurements == other.measurements


def test_a_limit_takes_the_first_of_the_same_batch(grid, make_tuner, measure):
    space = grid(8, 8, 8)
    first, other = make_tuner(space), make_tuner(space)
    whole, part = first.ask().configs, other.ask(2).configs
    np.testing.assert_array_equal(whole[:2], part)
    other.tell(measure(space, part))
    assert len(other.visited) == 2


def test_what_was_not_measured_may_come_again(grid, make_tuner, measure):
    space = grid(2, 2)
    tuner = make_tuner(space)
    tuner.tell(measure(space, tuner.ask().configs[:1]))
    assert len(tuner.ask().configs) == 3


def test_failures_are_learnt_as_well(grid, make_tuner):
    tuner = make_tuner(grid(5, 5))
    for _ in range(3):
        batch = tuner.ask().configs
        tuner.tell(
            [Measurement(config=tuple(c), failure=FailureKind.CRASH) for c in batch.tolist()]
        )
    assert tuner.best is None
    assert len(tuner.visited) == 12


def test_tell_refuses_strangers_and_repeats(grid, make_tuner, measure):
    space = grid(5, 5)
    tuner = make_tuner(space)
    batch = tuner.ask().configs
    outcomes = measure(space, batch)
    asked = {tuple(row) for row in batch.tolist()}
    stranger = next((i, 0) for i in range(5) if (i, 0) not in asked)
    with pytest.raises(ValueError, match="last batch"):
        tuner.tell([*outcomes[:1], *outcomes[:1]])
    with pytest.raises(ValueError, match="last batch"):
        tuner.tell(measure(space, np.array([stranger])))
    with pytest.raises(RuntimeError, match="before asking again"):
        tuner.ask()


def test_a_sampler_may_choose_to_measure_few(grid, make_tuner, measure):
    class Frugal(stages.Sampler):
        def select(self, candidates, visited, count):
            return candidates.configs[:2]

    space = grid(9, 9, 9)
    tuner = make_tuner(space, sampler=Frugal())
    tuner.tell(measure(space, tuner.ask().configs))
    assert len(tuner.ask().configs) == 2


def test_a_suggestion_that_is_illegal_or_known_changes_nothing(grid, make_tuner, measure):
    guesses = np.array([[3, 4], [5, 6], [1, 1], [2, 2]])
    space = grid(9, 9, first_guesses=guesses, holds=lambda v: v["k0"] != 8)
    tuner = make_tuner(space)
    tuner.suggest((8, 8))
    batch = tuner.ask().configs
    assert batch.tolist() == guesses.tolist()
    tuner.tell(measure(space, batch))
    tuner.suggest((5, 6))
    assert [5, 6] not in tuner.ask().configs.tolist()


def test_suggestions_take_at_most_half_a_batch_the_last_one_first(grid, make_tuner):
    tuner = make_tuner(grid(9, 9, first_guesses=np.array([[3, 4], [5, 6], [1, 1], [2, 2]])))
    for index in range(5):
        tuner.suggest((index, 8))
    assert tuner.ask().configs.tolist() == [[4, 8], [3, 8], [3, 4], [5, 6]]


def test_a_guess_is_no_batch_and_teaches_with_the_first_one(grid, make_tuner, measure):
    guesses = np.array([[2, 2, 2], [1, 1, 1], [3, 3, 3]], np.int32)
    space = grid(9, 9, 9, first_guesses=guesses)
    tuner = make_tuner(space, batch_size=4)
    guess = tuner.guess().configs
    assert guess.tolist() == [[2, 2, 2]]
    with pytest.raises(RuntimeError, match="tell the measurements"):
        tuner.guess()
    tuner.tell(measure(space, guess))
    assert (tuner.rounds, len(tuner.measurements), tuner.best.config) == (1, 1, (2, 2, 2))
    assert tuner.stages.score is None, "nothing was learnt yet"
    batch = tuner.ask().configs
    assert batch[:2].tolist() == guesses[1:].tolist()
    assert len(batch) == 4
    tuner.tell(measure(space, batch))
    assert tuner.stages.score is not None
    assert len(tuner.measurements) == 5


def test_what_was_suggested_is_guessed_before_what_the_space_recommends(grid, make_tuner, measure):
    space = grid(9, 9, first_guesses=np.array([[0, 0]], np.int32))
    tuner = make_tuner(space)
    tuner.suggest((4, 4))
    for expected in ([4, 4], [0, 0]):
        guess = tuner.guess().configs
        assert guess.tolist() == [expected]
        tuner.tell(measure(space, guess))
    assert not len(tuner.guesses)
    assert not len(tuner.guess().configs)
    assert len(tuner.ask().configs), "there is a batch all the same"


def _halved(config):
    """A compiler that has no odd second choice, and no program of a first choice of 4."""
    return None if config[0] == 4 else (config[0], config[1] - config[1] % 2)


def test_every_program_once_as_what_it_becomes(grid, make_tuner, measure):
    space = grid(5, 6, resolve=_halved)
    tuner = make_tuner(space)
    seen = []
    while len(batch := tuner.ask().configs):
        seen += [tuple(row) for row in batch.tolist()]
        tuner.tell(measure(space, batch))
    assert sorted(seen) == [(first, second) for first in range(4) for second in (0, 2, 4)]
    assert [m.config for m in tuner.measurements] == seen


def test_first_guesses_and_suggestions_are_what_they_become(grid, make_tuner):
    space = grid(9, 9, first_guesses=np.array([[4, 0], [3, 5], [3, 4]]), resolve=_halved)
    assert space.first_guesses.tolist() == [[3, 4]]
    tuner = make_tuner(space)
    tuner.enqueue((2, 3))
    proposal = tuner.ask()
    assert proposal.configs[0].tolist() == [2, 2]
    assert proposal.origins[2, 2] is Measurement.Origin.SUGGESTION


CONFIGS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, max_size=12)


def measured(configs):
    return {config: Measurement(config=config, seconds=(1e-3,)) for config in configs}


@given(CONFIGS, st.integers(0, 12), st.integers(0, 15), st.randoms(use_true_random=False))
def test_every_configuration_is_stored_missing_or_left_out(configs, stored, limit, order):
    known = configs[::2][:stored]
    batch = Batch(Proposal(configs=np.array(configs)), measured(known))
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
    assert [measurement.config for measurement in batch.measurements] == expected


def test_what_is_not_missing_cannot_arrive():
    batch = Batch(Proposal(configs=np.array([(0,), (1,)])), measured([(0,)]))
    assert not batch.submitted
    batch.submit(0.0)
    assert batch.submitted
    for config in ((0,), (2,)):
        with pytest.raises(ValueError, match="not in list"):
            batch.arrive(Measurement(config=config, seconds=(1e-3,)), 1.0)


SPACE = DesignSpace([Choice(name="a", options=(1, 2))])
TASK = Task(name="a", operator="x", arguments={}, target="none", flop=1.0)
OTHER = attrs.evolve(TASK, name="b", operator="y")


def _history(task):
    observations = stages.Observations.of(SPACE, [])
    return stages.Archive.History(task=task, space=SPACE, observations=observations)


def test_a_task_never_sees_itself_under_any_name():
    archive = stages.Archive()
    for task in (TASK, attrs.evolve(TASK, name="the same again"), OTHER):
        archive.record(_history(task))
    assert [history.task for history in archive.others(TASK)] == [OTHER]
    assert [history.task.key for history in archive.others(OTHER)] == [TASK.key]


def test_the_latest_record_counts():
    archive = stages.Archive()
    archive.record(_history(TASK))
    latest = _history(TASK)
    archive.record(latest)
    assert archive.others(OTHER) == [latest]


def test_shared_objects_are_made_once():
    archive = stages.Archive()
    first = archive.shared("ppo/policy", lambda: np.zeros(1))
    assert archive.shared("ppo/policy", lambda: np.ones(1)) is first
    assert archive.shared("ppo/other", lambda: None) is None
