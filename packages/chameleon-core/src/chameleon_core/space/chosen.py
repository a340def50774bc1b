"""From knob values, as people write them, to the indices that a configuration is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from chameleon_core.errors import ConfigError
from chameleon_core.space.design import DesignSpace
from chameleon_core.space.knobs import Knob
from chameleon_core.words import did_you_mean

_SHOWN = 8
"""Values of a knob that a sentence names."""


def index_of(knob: Knob, value: Any) -> int:
    """The index of a knob's choice.

    Args:
        knob: the knob.
        value: one of its choices, as ``Knob.decode`` gives it; lists count as tuples.

    Raises:
        ConfigError: it has no such choice.
    """
    wanted = _plain(value)
    for index in range(knob.cardinality):
        if knob.decode(index) == wanted:
            return index
    known = [repr(knob.decode(index)) for index in range(min(knob.cardinality, _SHOWN))]
    more = f" and {knob.cardinality - _SHOWN} more" if knob.cardinality > _SHOWN else ""
    raise ConfigError(
        f"knob '{knob.name}' has no value {value!r}",
        hint=f"its values are {', '.join(known)}{more}",
    )


def knob_of(space: DesignSpace, name: str) -> Knob:
    """A knob by its name.

    Raises:
        ConfigError: the space has no such knob.
    """
    if name not in space.index:
        raise ConfigError(
            f"there is no knob '{name}'{did_you_mean(name, space.index)}",
            hint=f"the knobs are {', '.join(space.index)}",
        )
    return space.knobs[space.index[name]]


def config_of(space: DesignSpace, configuration: Mapping[str, Any]) -> tuple[int, ...]:
    """The knob indices of a configuration.

    Args:
        space: its space.
        configuration: knob values by name; those of knobs that do not apply may be left out.

    Raises:
        ConfigError: a knob or a value that the space does not have, a knob that is missing, or a
            configuration that is not legal; says why.
    """
    if not isinstance(configuration, Mapping):
        raise ConfigError(
            f"{configuration!r} is no configuration",
            hint='name a value of every knob, as in {"tile": 4, "unroll": 16}',
        )
    row = np.zeros((1, len(space.knobs)), np.int32)
    for name, value in configuration.items():
        row[0, space.index[knob_of(space, name).name]] = index_of(knob_of(space, name), value)
    row = space.canonical(row)
    applies = space.active(row)[0]
    missing = [
        name for name, at in space.index.items() if applies[at] and name not in configuration
    ]
    if missing:
        raise ConfigError(
            f"the configuration says nothing of {', '.join(map(repr, missing))}",
            hint="name a value of every knob that applies",
        )
    config = tuple(int(index) for index in row[0])
    reason = space.why_illegal(config)
    if reason is not None:
        raise ConfigError(
            f"{dict(configuration)} is no legal configuration: {reason}",
            hint="choose values that meet the conditions of the space",
        )
    return config


def _plain(value: Any) -> Any:
    """A value as ``Knob.decode`` would give it."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value
