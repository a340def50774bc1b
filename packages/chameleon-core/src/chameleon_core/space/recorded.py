"""Features of configurations of which only the decoded choices are left: an earlier run's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_core.space.knobs import aligned, alignment, magnitude


def recorded_features(
    choices: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> NDArray[np.float32]:
    """Knob features as ``DesignSpace.features`` gives them, without the design space.

    Analytical features cannot be had from choices alone; neither can those of knobs that a
    configuration does not have. They are NaN.

    Args:
        choices: n configurations as ``DesignSpace.decode`` gives them, perhaps by way of JSON.
        names: the features wanted, in the terms of ``DesignSpace.feature_names``.

    Returns:
        Shape (n, len(names)).
    """
    out = np.full((len(choices), len(names)), np.nan, np.float32)
    for row, decoded in enumerate(choices):
        known = {name: value for knob in decoded.items() for name, value in _features(*knob)}
        symbols = tuple(f"{knob}=" for knob, value in decoded.items() if isinstance(value, str))
        for column, name in enumerate(names):
            if name in known:
                out[row, column] = known[name]
            elif name.startswith(symbols):
                out[row, column] = 0.0
    return out


def recorded_names(choices: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Names of all features that ``recorded_features`` can tell of configurations.

    Args:
        choices: as there.

    Returns:
        Distinct names, in the order in which they are met.
    """
    met = (name for decoded in choices for knob in decoded.items() for name, _ in _features(*knob))
    return tuple(dict.fromkeys(met))


def _features(knob: str, value: Any) -> Iterator[tuple[str, float]]:
    """Names and values of the features of one choice; a symbol's others are 0 and left out."""
    if isinstance(value, str):
        yield f"{knob}={value}", 1.0
    elif isinstance(value, list | tuple):
        for part, factor in enumerate(value):
            yield f"{knob}.{part}", float(np.log2(np.float64(factor)))
    else:
        yield knob, float(magnitude(np.asarray(value)))
        if isinstance(value, int):
            yield aligned(knob), float(alignment(np.asarray(value)))
