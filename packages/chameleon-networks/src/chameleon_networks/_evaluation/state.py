"""Runs delivered networks whose state is explicit, as their frameworks take and return it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from chameleon_core.plugin_api import Arrays

from chameleon_networks._artifact.load import flat

CALLS = 6
"""Number of calls in sequence with which a network that has a state is checked."""


def arguments(network: Any, inputs: Arrays) -> tuple[Arrays, Mapping[str, Any]]:
    """The positional and keyword arguments of a call; the last inputs are the network's state."""
    buffers = getattr(network, "state", ())
    if not buffers:
        return inputs, {}
    first = len(inputs) - len(buffers)
    pairs = zip(buffers, inputs[first:], strict=True)
    return inputs[:first], {"state": {spec.source: array for spec, array in pairs}}


def outputs_and_state(network: Any, inputs: Arrays) -> Arrays:
    """All outputs of a call, and then its state, which it has changed in place among the inputs."""
    given, named = arguments(network, inputs)
    return [*flat(network(*given, **named)), *inputs[len(given) :]]


def in_sequence(
    run: Callable[[Arrays], Arrays], batches: Iterable[Arrays], initial: Arrays
) -> list[Arrays]:
    """The outputs and the new state of calls, each of which takes the state of the call before.

    Args:
        run: A function of inputs and state, which returns outputs and the new state.
        batches: The inputs of each call, with a state that is replaced.
        initial: The state of the first call.
    """
    answers: list[Arrays] = []
    state, count = initial, len(initial)
    for inputs in batches:
        answers.append(run([*inputs[: len(inputs) - count], *state]))
        state = answers[-1][-count:]
    return answers
