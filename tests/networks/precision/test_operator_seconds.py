"""What operators take in each type: alone, until they are all seen in networks."""

from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_networks._delivery.mixed_precision.operator_seconds import (
    CompiledCandidate,
    OperatorSeconds,
)


@pytest.fixture(scope="module")
def kernels(networks, target, kernels_taking):
    """Every operator takes 2 s in float32 and 1 s in int8."""
    return kernels_taking(networks, target, float32=2.0, int8=1.0)


def _built(networks, kernels, types):
    network = networks.of(types)
    return CompiledCandidate.of(types, network, kernels.adapted(network.fusions), Path("none"))


def _took(kind, *seconds):
    return {f"{index} {kind}": took for index, took in enumerate(seconds)}


def test_operators_have_the_times_of_the_networks_they_were_seen_in(networks, kernels):
    table = OperatorSeconds(networks, ("int8",), kernels)
    assert table.times.tolist() == [[2.0, 1.0]] * 4
    uniform = [_built(networks, kernels, types) for types in ({}, table.uniform("int8"))]
    assert table.observe(uniform, [_took("float32", 3, 4, 5, 6), _took("int8", 6, 5, 4, 3)])
    assert table.times.tolist() == [[3, 6], [4, 5], [5, 4], [6, 3]]
    mixed = _built(networks, kernels, {1: "int8", 2: "int8"})
    seconds = {"0 float32": 7.0, "1 int8": 7.5, "2 int8": 8.0, "3 float32": 9.0}
    assert table.observe([mixed], [seconds])
    assert table.times.tolist() == [[7, 6], [4, 7.5], [5, 8], [9, 3]], "another type's stays"


def test_times_alone_are_not_compared_with_times_in_networks(networks, kernels):
    table = OperatorSeconds(networks, ("int8",), kernels)
    uniform = [_built(networks, kernels, types) for types in ({}, table.uniform("int8"))]
    assert not table.observe(uniform, [_took("float32", 3, 4, 5, 6), _took("int8", 6, 5, 4)])
    assert not table.observe(uniform[:1], [_took("float32", 3, 4, 5, 6)])
    assert table.times.tolist() == [[2.0, 1.0]] * 4


def test_the_seconds_of_a_task_are_shared_by_its_occurrences(networks, kernels):
    built = _built(networks, kernels, {})
    twice = attrs.evolve(built, tasks={**built.tasks, 4: built.tasks[0]})
    seconds = twice.seconds(_took("float32", 3, 4, 5, 6))
    assert seconds == {0: 1.5, 1: 4.0, 2: 5.0, 3: 6.0, 4: 1.5}


def test_what_was_not_measured_stays_out_however_fast_it_is_in_a_network(networks, kernels):
    fewer = kernels.without(
        frozenset(key for key, winner in kernels.winners.items() if winner.task.name == "3 int8")
    )
    table = OperatorSeconds(networks, ("int8",), fewer)
    assert sorted(table.uniform("int8")) == [0, 1, 2]
    uniform = [_built(networks, fewer, types) for types in ({}, table.uniform("int8"))]
    assert table.observe(uniform, [_took("float32", 3, 3, 3, 3), _took("int8", 1, 1, 1)])
    assert np.isinf(table.times[3, 1])
