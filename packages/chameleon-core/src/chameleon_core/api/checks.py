"""What arguments have to be, with sentences for those that are not."""

from __future__ import annotations

from typing import Any

from chameleon_core.errors import ConfigError


def whole_number(value: Any, what: str, *, hint: str) -> int:
    """A whole number from 1.

    Args:
        value: what was given.
        what: the argument's name.
        hint: what to do about another one.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"'{what}' must be a whole number from 1, not {value!r}", hint=hint)
    return int(value)


def one_each(values: Any, count: int, what: str) -> None:
    """See that there is one value for each configuration of a batch.

    Args:
        values: what was told.
        count: configurations of the batch.
        what: the values are, in the plural.

    Raises:
        ConfigError: it is no sequence, or not as long as the batch.
    """
    if not hasattr(values, "__len__"):
        raise ConfigError(
            f"{what} are {values!r}, which is no sequence",
            hint="give a list with one entry per configuration of the batch",
        )
    if len(values) != count:
        raise ConfigError(
            f"{len(values)} {what} were told of {count} configurations",
            hint="tell one for each, in their order; None for those that have none",
        )


__all__ = ["one_each", "whole_number"]
