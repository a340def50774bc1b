"""What people say of a configuration, as a measurement: a time, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from chameleon_core.api.checks import one_each
from chameleon_core.api.measurements import RESERVED
from chameleon_core.errors import ConfigError, InvalidConfigurationError
from chameleon_core.measurement import FailureKind, Measurement

_KINDS: tuple[tuple[type[BaseException], FailureKind], ...] = (
    (InvalidConfigurationError, FailureKind.INVALID),
    (MemoryError, FailureKind.OUT_OF_MEMORY),
    (TimeoutError, FailureKind.RUN_TIMEOUT),
    (ConnectionError, FailureKind.DEVICE_LOST),
)
"""Kinds of failure of the exceptions that say one; all others are errors of the run."""


def measurement_of(config: tuple[int, ...], said: Any, *, run_seconds: float = 0.0) -> Measurement:
    """The measurement of a configuration.

    Args:
        config: knob indices.
        said: seconds, or anything else above 0 that is to be small; several of them for several
            repeats; ``None``, infinity or not-a-number for a failure; an exception, or a text, for
            one in words. A text may begin with a kind of failure and a colon.
        run_seconds: wall-clock that it took, in seconds.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(said, BaseException):
        kind = next((kind for of, kind in _KINDS if isinstance(said, of)), FailureKind.RUN_ERROR)
        return _failed(config, kind, f"{type(said).__name__}: {said}", run_seconds)
    if isinstance(said, str):
        head, colon, rest = said.partition(":")
        kinds = {kind.value: kind for kind in FailureKind}
        if colon and head.strip() in kinds:
            return _failed(config, kinds[head.strip()], rest.strip(), run_seconds)
        return _failed(config, FailureKind.RUN_ERROR, said, run_seconds)
    if said is None:
        return _failed(config, FailureKind.RUN_ERROR, "it gave no time", run_seconds)
    repeats = _repeats(said)
    if not all(map(math.isfinite, repeats)):
        return _failed(config, FailureKind.RUN_ERROR, f"it took {said}", run_seconds)
    if min(repeats) <= 0:
        raise ConfigError(
            f"{said!r} cannot be told: what is made small has to be above 0, as times are",
            hint="tell what falls and rises with it and is above 0, such as its exponential, or "
            "None for a failure",
        )
    return Measurement(config=config, seconds=repeats, run_seconds=run_seconds)


def _repeats(said: Any) -> tuple[float, ...]:
    values = said.tolist() if isinstance(said, np.ndarray | np.generic) else said
    entries = list(values) if isinstance(values, Sequence) else [values]
    if not entries or not all(_is_number(one) for one in entries):
        raise ConfigError(
            f"{said!r} is no outcome of a configuration",
            hint="tell seconds, a list of them (one per repeat), None, or a failure in words",
        )
    return tuple(float(one) for one in entries)


def _is_number(value: Any) -> bool:
    """Whether it may be seconds: a truth value says whether something went well, not how long."""
    return isinstance(value, Real) and not isinstance(value, bool)


def quantities_of(
    configs: Sequence[tuple[int, ...]], other: Mapping[str, Sequence[Any]]
) -> dict[str, list[tuple[tuple[int, ...], float]]]:
    """Further quantities of a batch, by name; those that are None are left out.

    Args:
        configs: knob indices of its configurations.
        other: one value per configuration each, by name.

    Raises:
        ConfigError: a name is no text or one of what is kept of every measurement, or values are
            not one number per configuration.
    """
    if not isinstance(other, Mapping):
        raise ConfigError(
            f"'other' must be lists of numbers by name, not {other!r}",
            hint='write other={"code_bytes": [64, 128]}',
        )
    found = {}
    for name, values in other.items():
        if not isinstance(name, str) or name in RESERVED:
            raise ConfigError(
                f"no quantity of yours can be called {name!r}",
                hint=f"take another text than {', '.join(RESERVED)}, which measurements have",
            )
        one_each(values, len(configs), f"values of '{name}'")
        told = [value.item() if isinstance(value, np.generic) else value for value in values]
        odd = [value for value in told if not (value is None or isinstance(value, Real))]
        if odd:
            raise ConfigError(
                f"'{name}' has the value {odd[0]!r}, which is no number",
                hint="tell a number for each configuration; None for those that have none",
            )
        found[name] = [
            (config, float(value))
            for config, value in zip(configs, told, strict=True)
            if value is not None
        ]
    return found


def _failed(
    config: tuple[int, ...], kind: FailureKind, message: str, run_seconds: float
) -> Measurement:
    return Measurement(config=config, failure=kind, message=message, run_seconds=run_seconds)


__all__ = ["measurement_of", "quantities_of"]
