"""Who builds next: one that knows the task if there is one, nobody who has ended."""

import pytest
from chameleon_runners._engine.workers import BuilderPool, StoppedError
from simulated_fleet import SimulatedPool


def never(config, _device):
    raise AssertionError(f"nobody was to measure {config}")


def started(size, recycle_after=None):
    pool = SimulatedPool(never)
    builders = BuilderPool(pool=pool, size=size, cores=[4, 5], recycle_after=recycle_after)
    builders.fill(size)
    pool.run_once(None)
    return pool, builders


def taken(builders, key):
    worker = builders.take(key)
    assert worker is not None
    return worker


def test_one_that_has_built_the_same_before_comes_first():
    _, builders = started(3)
    workers = [taken(builders, "") for _ in range(3)]
    assert builders.take("") is None
    for worker, key in zip(workers, "abc", strict=True):
        worker.builder_key = key
        builders.give_back(worker)
    assert taken(builders, "b") is workers[1]
    assert taken(builders, "new") is workers[0]
    assert taken(builders, "a") is workers[2]


def test_one_that_has_ended_makes_room_for_another():
    pool, builders = started(2)
    first, second = taken(builders, ""), taken(builders, "")
    builders.give_back(second)
    builders.end(second)
    assert builders.take("") is None
    assert not first.work
    builders.fill(2)
    assert builders.busy
    pool.run_once(None)
    assert not builders.busy
    assert taken(builders, "") not in {first, second}


def test_each_has_a_core_of_its_own():
    _, builders = started(2)
    assert sorted([builders.cores_of(taken(builders, "")) for _ in range(2)]) == [[4], [5]]


@pytest.mark.parametrize(("recycle_after", "alive"), [(3, False), (4, True), (None, True)])
def test_one_that_has_built_much_is_replaced(recycle_after, alive):
    _, builders = started(1, recycle_after)
    worker = taken(builders, "")
    worker.build_count = 3
    builders.give_back(worker)
    assert worker.alive is alive


def test_nobody_is_told_what_happened_once_all_were_ended():
    pool = SimulatedPool(never)
    messages = []
    worker = pool.start_worker(messages.append)
    pool.run_once(None)
    assert len(messages) == 1
    pool.submit(worker, messages.append, {"command": "open"}, 1.0)
    pool.close()
    with pytest.raises(StoppedError):
        pool.run_once(None)
    assert len(messages) == 1


def test_asking_waits_for_the_answer():
    pool = SimulatedPool(never)
    worker = pool.start_worker(lambda _: None)
    pool.run_once(None)
    event = pool.ask(worker, {"command": "open"}, 1.0, lambda: pool.run_once(None))
    assert event.ok
    assert worker.idle
