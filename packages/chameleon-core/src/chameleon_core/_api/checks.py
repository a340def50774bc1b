"""Checks of arguments. Each check raises an error that names the argument and the next step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from numbers import Integral
from typing import Any

from chameleon_core._errors import ConfigError
from chameleon_core._space.design import DesignSpace

_NO_SEQUENCES = (str, bytes, Mapping, AbstractSet)
"""Types that have a length, but no ordered entries of which each belongs to one configuration."""


def whole_number(value: Any, what: str, *, hint: str) -> int:
    """Check that an argument is a positive whole number, and return it.

    Args:
        value: the value of the argument.
        what: the name of the argument.
        hint: the next step for the error message.

    Raises:
        ConfigError: the value is not a whole number, or is below 1.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ConfigError(f"'{what}' must be a whole number from 1, not {value!r}", hint=hint)
    return int(value)


def part_of_batch(count: Any, batch_size: int) -> int:
    """The number of configurations that a call of ``ask`` may return.

    Args:
        count: the argument of ``ask``; None for a whole batch.
        batch_size: the number of configurations in a whole batch.

    Raises:
        ConfigError: the count is not a whole number from 1 to ``batch_size``.
    """
    if count is None:
        return batch_size
    asked = whole_number(count, "count", hint="leave it out for a whole batch")
    if asked > batch_size:
        raise ConfigError(
            f"{asked} configurations are more than a batch of {batch_size}",
            hint=f"make the tuner with batch_size={asked}: stages plan for whole batches",
        )
    return asked


def one_each(values: Any, count: int, what: str) -> None:
    """Check that there is one value for each configuration of a batch.

    Args:
        values: the reported values.
        count: number of configurations in the batch.
        what: a noun in the plural for the values, for the error message.

    Raises:
        ConfigError: the values are not a sequence, or the sequence is longer or shorter than the
            batch.
    """
    if not hasattr(values, "__len__") or isinstance(values, _NO_SEQUENCES):
        raise ConfigError(
            f"{what} are {values!r}, which is no sequence",
            hint="give a list with one entry per configuration of the batch",
        )
    if len(values) != count:
        raise ConfigError(
            f"{len(values)} {what} were told for {count} configurations",
            hint="tell one for each, in their order; None for those that have none",
        )


def a_space(value: Any) -> DesignSpace:
    """Check that an argument of a public function is a design space, and return it.

    Args:
        value: the value of the argument.

    Raises:
        ConfigError: the value is not a ``DesignSpace``.
    """
    if not isinstance(value, DesignSpace):
        raise ConfigError(
            f"{value!r} is no design space",
            hint="make one of it, as in cc.design_space(tile=[1, 2, 4], unroll=[0, 16])",
        )
    return value


def takes_knobs(function: Any, space: DesignSpace) -> None:
    """Check that a function takes the knobs of a space by their names.

    Without this check, a function with other parameters would fail for every configuration. This
    would look like a space without a working configuration.

    Args:
        function: the function.
        space: the design space.

    Raises:
        ConfigError: ``function`` is not callable, or its parameters are not the knobs.
    """
    names = list(space.index)
    hint = f"its parameters are the knobs: {', '.join(names)} (or ** for all of them)"
    if not callable(function):
        raise ConfigError(f"{function!r} is no function of a configuration", hint=hint)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        raise ConfigError(f"the function cannot be called: {error}", hint=hint) from error
