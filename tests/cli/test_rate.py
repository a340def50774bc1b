"""The time left that progress shows."""

from chameleon_cli.progress import Rate
from chameleon_core.loop.budget import Allowance, Spent
from chameleon_core.pipeline.schema import Budget, Scope


def ticked(monkeypatch, **options):
    clock = iter(range(100))
    monkeypatch.setattr("chameleon_cli.progress.time.monotonic", lambda: float(next(clock)))
    rate = Rate(**options)
    for _ in range(10):
        rate.tick()
    return rate


def test_nothing_is_said_before_the_first_candidate():
    assert Rate().left(5) == "-"


def test_the_rate_tells_how_long_the_rest_takes(monkeypatch):
    assert ticked(monkeypatch).left(200) == "3:20"


def test_a_wall_clock_budget_may_end_it_earlier(monkeypatch):
    # Ten of seventy seconds are over.
    assert ticked(monkeypatch, seconds_left=70.0).left(1_000_000) == "1:00"


def test_the_wall_clock_that_is_left_follows_the_scope():
    spent = [Spent(measured=3, seconds=10.0), Spent(measured=1, seconds=40.0)]
    each = Allowance(budget=Budget(wall_time=30.0))
    together = Allowance(budget=Budget(wall_time=60.0, scope=Scope.NETWORK))
    assert each.seconds_left(spent) == 20.0
    assert together.seconds_left(spent) == 10.0
    assert Allowance(budget=Budget()).seconds_left(spent) is None
