"""The search: proposals, what is measured, the front, and how it is shown."""

import attrs
import numpy as np
import pytest
import torch
from chameleon_transforms._nest.tasks import specs_of
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._search.front import Point, front, pareto_mask
from chameleon_transforms._search.report import page, table
from chameleon_transforms._search.search import (
    Evolution,
    OperatorPredictor,
    TransformSearch,
    estimated_seconds,
)
from chameleon_transforms._section import Transformation
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_nobody_on_the_front_is_dominated(rows):
    losses = np.array(rows, float)
    best = pareto_mask(losses)
    for number, row in enumerate(losses):
        better = [(other <= row).all() and (other < row).any() for other in losses]
        twice = any((other == row).all() for other in losses[:number])
        assert best[number] == (not any(better) and not twice)


def point(seconds, score, *, accepted=True, parameters=1, config=(0,)):
    return Point(
        config=config,
        seconds=seconds,
        predicted_seconds=1.0 if seconds is None else seconds,
        scores={"fisher": score},
        parameters=parameters,
        multiply_adds=1,
        accepted=accepted,
        transforms={"<layer>": "group(2)"},
        channels={},
    )


def test_the_front_has_measured_and_accepted_points_alone():
    slow, fast = point(2.0, 5.0, config=(1,)), point(1.0, 4.0, config=(2,))
    others = [point(None, 9.0), point(0.1, 1.0, accepted=False), point(float("inf"), 9.0)]
    worse = point(3.0, 3.0, parameters=2)
    assert front([slow, *others, worse, fast], "fisher") == [fast, slow]
    assert front(others, "fisher") == []
    assert Point.from_json(slow.to_json()) == slow


def test_a_front_of_weights_does_not_want_few_of_them_as_well():
    few = point(2.0, 1.0, parameters=1, config=(1,))
    more = point(1.0, 1.0, parameters=2, config=(2,))
    assert front([few, more], "fisher") == [more, few]
    counted = [attrs.evolve(row, scores={"parameters": row.parameters}) for row in (few, more)]
    assert front(counted, "parameters") == counted[1:]


def test_page_and_table_show_the_front():
    points = [point(2.0, 5.0, config=(1,)), point(1.0, 4.0, config=(2,)), point(None, -1.0)]
    shown = page(points, points[:2], "fisher", "A title")
    assert "<th scope=col>changes</th>" in shown
    assert [shown.count(f"</svg> {name}</span>") for name in ("original", "front")] == [1, 1]
    assert "&lt;layer&gt;: group(2)" in shown
    assert "better in time, fisher, number of weights" in shown
    assert "src=" not in shown
    rows = table(points[:2], points[0]).splitlines()
    assert len(rows) == 3
    assert rows[2].startswith("1,1.0,2.0,")


def test_a_network_with_fewer_channels_alone_is_changed():
    stem = attrs.evolve(point(1.0, 4.0, config=(2,)), transforms={}, channels={"stem": 8})
    both = attrs.evolve(stem, transforms={"layer": "group(2)"})
    original = attrs.evolve(stem, channels={}, config=(1,))
    shown = page([original, stem, both], [stem, both, original], "fisher", "A title")
    assert "<summary>fewer channels in 1 set</summary>stem: 8 channels</details>" in shown
    assert "<summary>1 layer transformed, fewer channels in 1 set</summary>" in shown
    assert "<td>none</td>" in shown
    assert "0 layers" not in shown


def test_proposals_are_legal_and_new(space):
    design = space.design
    evolution = Evolution(design, np.random.default_rng(0))
    configs = np.array([space.original], np.int32)
    seen = {tuple(space.original)}
    for _ in range(3):
        losses = np.stack([configs.sum(axis=1), -configs.sum(axis=1)], axis=1).astype(float)
        fresh = evolution.propose(configs, losses, np.ones(len(configs), bool), 8)
        assert len(fresh) == 8
        assert design.legal(fresh).all()
        rows = {tuple(row) for row in fresh.tolist()}
        assert len(rows) == 8
        assert not rows & seen
        seen |= rows
        configs = np.concatenate([configs, fresh])


def test_a_predictor_learns_a_rate(space):
    rows = space.design.sample(20, np.random.default_rng(0))
    specs = {
        spec
        for row in rows
        for program in space.candidate(row).programs.values()
        for spec in specs_of(program)
    }
    known = {spec: 3.0 * estimated_seconds(spec) for spec in list(specs)[::2]}
    predictor = OperatorPredictor()
    predictor.fit({**known, next(iter(specs)): float("inf")})
    for spec in specs:
        assert predictor.seconds(spec) == pytest.approx(3.0 * estimated_seconds(spec), rel=0.05)


class Times:
    """Measures as many seconds as there are multiply-adds."""

    def __init__(self):
        self.known = {}
        self.asked = []

    def seconds(self, spec):
        return self.known.get(spec)

    def measure(self, specs):
        fresh = {spec for spec in specs if spec not in self.known}
        self.asked += fresh
        self.known |= {spec: spec.flop * 1e-9 for spec in fresh}
        return len(fresh)


@pytest.fixture
def search(space, scores):
    def make(times, decides="fisher", **options):
        generator = torch.Generator().manual_seed(1)
        scorer = Scorer(space, torch.randn(4, 1, 8, 8, generator=generator), torch.arange(4))
        arguments = Transformation(**{"candidates": 20, "rounds": 2, "per_round": 2, **options})
        ordered = {decides: scores[decides], **scores}
        return TransformSearch(space, scorer, ordered, times, arguments, batch=1, seed=0)

    return make


def test_a_search_measures_what_it_recommends(search, space):
    times = Times()
    answer = search(times)
    result = answer.run()
    assert len(answer.points) == 21
    assert answer.original.seconds > result[0].seconds
    assert len(times.asked) == len(set(times.asked)), "no operator is measured twice"
    for row in result:
        assert row.accepted
        assert row.scores["fisher"] >= answer.original.scores["fisher"]
        programs = space.candidate(row.config).programs.values()
        assert row.seconds == pytest.approx(
            sum(times.known[spec] for program in programs for spec in specs_of(program))
        )
    unmeasured = [row for row in answer.points if row.seconds is None]
    assert unmeasured, "most candidates are judged alone"


def test_one_seed_gives_one_front(search):
    first, other = (search(Times()).run() for _ in range(2))
    assert [p.config for p in first] == [p.config for p in other]


@pytest.mark.full
def test_tolerance_lets_more_through(search):
    strict, loose = search(Times()), search(Times(), tolerance=0.9)
    strict.run()
    loose.run()
    counts = [sum(point.accepted for point in result.points) for result in (strict, loose)]
    assert counts[1] > counts[0]


@pytest.mark.full
@pytest.mark.parametrize("name", ["parameters", "multiply-adds"])
def test_a_size_is_compared_with_the_work_that_is_left(search, name):
    result = search(Times(), name)
    result.run()
    before = result.original
    shares = [point.scores[name] / before.scores[name] for point in result.points]
    work = [point.multiply_adds / before.multiply_adds for point in result.points]
    assert min(work) < 0.5
    accepted = [share >= left for share, left in zip(shares, work, strict=True)]
    assert [point.accepted for point in result.points] == accepted
    assert all(accepted) == (name == "multiply-adds")


def test_nothing_is_measured_unless_the_options_say_so(search):
    times = Times()
    result = search(times, per_round=0)
    assert all(row.predicted_seconds == row.seconds for row in result.run())
    assert not times.asked
