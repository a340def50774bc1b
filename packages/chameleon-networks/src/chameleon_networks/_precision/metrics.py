"""A user's own function that measures how good a network is."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any

from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError
from chameleon_tvm.api import first_line, named_function
from numpy.typing import NDArray

Outputs = NDArray[Any] | Arrays
Metric = Callable[[Callable[..., Outputs]], Any]


def import_metric(source: str) -> Metric:
    """Import a user's function that gets a network and returns a number; larger is better."""
    hint = "Name a function that gets the network and returns a number."
    return named_function(source, "metric", hint)


def evaluate_metric(metric: Metric, source: str, run: Callable[[Arrays], Arrays]) -> float:
    """Compute the score that a user's function returns for a network."""

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
    except Exception:  # noqa: BLE001 - the class of what it returned may raise anything
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(
            f"metric: {source} returned {_text(value)}, which is no finite number",
            hint="Return one number, of which more is better.",
        )
    return score


def _text(value: Any) -> str:
    """The text of a value, shortened; Python writes no integers of thousands of digits."""
    try:
        return reprlib.repr(value)
    except ValueError:
        return f"a long {type(value).__name__}"
