"""A run says why operators are in float32 that no bound keeps there."""

import numpy as np
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._precision.points import float32_reasons
from chameleon_networks._precision.typed_networks import TypedNetworks


def _weights(seed):
    return relax.const(np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32))


def _build(emit, x):
    """A product of constants, which has no int8, and three that have."""
    state = emit(relax.op.matmul(_weights(1), _weights(2)))
    read = emit(relax.op.tanh(emit(relax.op.matmul(x, _weights(3)))))
    both = emit(relax.op.tanh(emit(relax.op.add(state, read))))
    last = emit(relax.op.tanh(emit(relax.op.matmul(both, _weights(4)))))
    return emit(relax.op.matmul(last, _weights(5)))


def test_reasons_are_counted(network_of):
    networks = TypedNetworks(*network_of(_build, (8, 8)), None)
    assert networks.reducible("int8") == (1, 2, 3)
    seconds = np.ones((4, 3))
    constant = "its input is no tensor of the network that could be observed"
    stays = "of 4 operators stay in float32, each since"
    assert float32_reasons(networks, ("int8", "int7"), seconds) == [f"1 {stays} {constant}"]
    # One type is enough to be measured in.
    seconds[1:, 1] = np.inf
    assert float32_reasons(networks, ("int8", "int7"), seconds) == [f"1 {stays} {constant}"]
    seconds[2:, 2] = np.inf
    assert float32_reasons(networks, ("int8", "int7"), seconds) == [
        f"2 {stays} it was not measured in int8",
        f"1 {stays} {constant}",
    ]


def test_nothing_is_said_where_all_operators_have_a_type(tiny):
    networks = TypedNetworks(*prepared_network(tiny), None)
    assert float32_reasons(networks, ("int8",), np.ones((4, 2))) == []
