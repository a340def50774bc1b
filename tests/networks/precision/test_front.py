"""What is chosen among the types of a network: by errors together, and by what was measured."""

import math

import attrs
import numpy as np
import pytest
from chameleon_core._network_result import NetworkResult
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery.mixed_precision.operator_seconds import OperatorSeconds
from chameleon_networks._precision.exchanged_tensors import exchanged_tensors, execution_order
from chameleon_networks._precision.points import ParetoFront, Point, dtype_counts_text
from chameleon_networks._precision.section import Precision

EACH = 1e-3
"""Error of every fusion in int8, alone."""


class Errors:
    """Errors that add up to some factor of their sum."""

    def __init__(self, factor):
        self.factor = factor

    def errors_alone(self, kinds):
        return {(index, kind): EACH for kind in kinds for index in range(4)}

    def error_of(self, types):
        return self.factor * EACH * len(types)


@pytest.fixture
def kernels(networks, target, kernels_taking):
    """Every operator takes 1 ms in float32, and half of that in int8."""
    return kernels_taking(networks, target, float32=1e-3, int8=0.5e-3)


@pytest.fixture
def front(networks, target, kernels_taking):
    def curve(*, faster=2.0, factor=1.0, rate=1e15):
        kernels = kernels_taking(networks, target, float32=1e-3, int8=1e-3 / faster)
        measured = OperatorSeconds(networks, ("int8",), kernels)
        return ParetoFront(networks, measured.kinds, measured.times, Errors(factor), rate=rate)

    return curve


def _kinds(network):
    """The type of what computes each fusion."""
    return [network.fusion(index).spec.dtype for index in range(4)]


def test_every_chain_of_the_network_is_computed_in_eight_bits(networks):
    assert networks.reducible("int8") == (0, 1, 2, 3)
    assert _kinds(networks.uniform("int8")) == ["int8"] * 4
    assert _kinds(networks.of({1: "int8"})) == ["float32", "int8", "float32", "float32"]


def test_the_front_goes_from_float32_to_the_fastest(front):
    curve = front()
    assert (curve.float32.types, curve.float32.error) == ({}, 0.0)
    assert curve.points[0] == curve.float32
    assert len(curve.points[-1].types) == 4
    seconds, errors = ([getattr(p, name) for p in curve.points] for name in ("seconds", "error"))
    assert seconds == sorted(seconds, reverse=True)
    assert errors == sorted(errors)


@pytest.mark.parametrize(("bound", "count"), [(4e-3, 4), (3.5e-3, 3), (1e-4, 0), (math.inf, 4)])
def test_the_fastest_within_the_bound_is_taken(front, bound, count):
    point = front().fastest_within(bound)
    assert len(point.types) == count
    assert point.error <= bound


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_errors_together_decide_and_not_their_sum(front, factor):
    bound = 2.0 * EACH
    point = front(factor=factor).fastest_within(bound)
    assert point.error == factor * EACH * len(point.types) <= bound
    assert len(point.types) == min(4, int(bound / (factor * EACH)))


def test_what_is_no_faster_is_not_chosen_and_told_of_all_the_same(front):
    curve = front(faster=0.5)
    assert curve.points == [curve.float32]
    assert [len(point.types) for point in curve.dominated] == [4]
    assert curve.uniform(math.inf) is None
    assert curve.fastest_within(math.inf) == curve.float32


def test_conversions_that_take_longer_than_they_save_are_not_chosen(front):
    assert front(rate=1e15).fastest_within(math.inf).types
    assert not front(rate=1e3).fastest_within(math.inf).types


def test_easing_ends_in_float32(front):
    curve = front()
    point = curve.points[-1]
    assert len(curve.reverted(point, point.error).types) == len(point.types) - 1
    assert curve.reverted(point, 0.0) == curve.float32


def test_an_operator_whose_numbers_a_type_does_not_hold_stays_in_float32(networks, kernels):
    class Overflowing(Errors):
        """The second operator's numbers are infinite in the type."""

        def errors_alone(self, kinds):
            return {**super().errors_alone(kinds), (1, "int8"): math.inf}

        def error_of(self, types):
            return math.inf if 1 in types else super().error_of(types)

    known = OperatorSeconds(networks, ("int8",), kernels)
    curve = ParetoFront(networks, known.kinds, known.times, Overflowing(1.0), rate=1e15)
    assert sorted(curve.fastest_within(math.inf).types) == [0, 2, 3]
    uniform = curve.uniform(math.inf)
    assert sorted(uniform.types) == [0, 2, 3]
    [note] = curve.notes
    assert note.startswith("1 of 4 operators are not computed in int8")


def test_a_chain_without_a_time_stays_in_float32(networks, target, kernels):
    unmeasured = {
        key: attrs.evolve(winner, seconds=None)
        for key, winner in kernels.winners.items()
        if winner.task.operator == "dense" and winner.seconds == 0.5e-3
    }
    assert len(unmeasured) == 1
    fewer = Kernels({**kernels.winners, **unmeasured}, None, target)
    known = OperatorSeconds(networks, ("int8",), fewer)
    assert sorted(known.uniform("int8")) == [0, 1, 2]
    point = ParetoFront(networks, known.kinds, known.times, Errors(1.0), rate=1e15).fastest_within(
        math.inf
    )
    assert sorted(point.types) == [0, 1, 2]


def test_an_output_of_another_type_takes_the_configuration_that_was_tuned(
    networks, target, kernels
):
    [alone] = [fusion for fusion in networks.of({1: "int8"}).fusions if fusion.spec.dtype == "int8"]
    assert alone.spec.output_dtype == "float32"
    assert alone.spec.task("x", target).key not in kernels.winners
    winner = kernels.like(alone)
    assert winner.seconds == 0.5e-3
    adapted = kernels.adapted([alone])
    assert adapted.winners[alone.spec.task("x", target).key].config == winner.config


def test_tensors_are_those_between_chains(networks):
    network = networks.network
    assert execution_order(network) == [0, 1, 2, 3]
    tensors = exchanged_tensors(network, ("float32", "int8"), 1.0)
    assert sorted((t.producer is None, t.producer or 0, t.consumers) for t in tensors) == [
        (False, 0, (1,)),
        (False, 1, (2,)),
        (False, 2, (3,)),
        (True, 0, (0,)),
    ]
    assert not any(t.in_float32 for t in tensors)
    for t in tensors:
        assert np.diag(t.conversions).tolist() == [0.0, 0.0]
        assert t.conversions[0, 1] == t.conversions[1, 0] > 0


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({}, "float32"),
        ({0: "int8", 1: "int8"}, "int8"),
        ({1: "int8"}, "int8, the rest float32"),
        ({0: "int8", 1: "bfloat16"}, "bfloat16 and int8"),
    ],
)
def test_a_networks_precision_in_words(types, expected):
    assert dtype_counts_text(types, 2) == expected


def test_a_point_in_words():
    point = Point(types={0: "int8", 2: "int8"}, seconds=1e-3, error=2e-3)
    assert point.line(3) == "1 ms, error 2.0e-03: 2 in int8, 1 in float32"
    types = {"int8": 2, "float32": 1}
    row = NetworkResult.FrontPoint(types=types, seconds=1e-3, error=2e-3, delivered=True)
    assert point.row(3, delivered=True) == row
    assert Precision(type="int8").types == ("int8",)
