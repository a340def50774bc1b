"""A user's own measure of how good a network is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.stages import Arrays
from chameleon_tvm.sources import named_function
from chameleon_tvm.words import first_line
from numpy.typing import NDArray

Outputs = NDArray[Any] | Arrays
Metric = Callable[[Callable[..., Outputs]], Any]


def metric_of(source: str) -> Metric:
    """A user's function that gets a network and returns a number, of which more is better.

    Args:
        source: ``path.py:function`` or ``package.module:function``.

    Raises:
        ConfigError: there is no such function.
    """
    hint = "Name a function that gets the network and returns a number."
    return named_function(source, "metric", hint)


def scored(metric: Metric, source: str, run: Callable[[Arrays], Arrays]) -> float:
    """The score that a user's function gives a network.

    Args:
        metric: the function; it calls the network as a delivered one, with an array for each input.
            It gets an array, or a list of several outputs.
        source: its name, for errors.
        run: the network.

    Raises:
        ConfigError: the function raises, or returns no finite number.
    """

    def network(*inputs: Any) -> Outputs:
        outputs = run(list(inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    try:
        value = metric(network)
    except ChameleonError:
        raise
    # The user's function may raise anything.
    except Exception as error:
        raise ConfigError(
            f"metric: {source} failed: {first_line(error)}",
            hint="It gets a function from arrays to arrays; call it by hand with such a one.",
        ) from error
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(
            f"metric: {source} returned {value!r}, which is no finite number",
            hint="Return one number, of which more is better.",
        )
    return score
