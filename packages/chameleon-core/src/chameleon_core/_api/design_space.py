"""A design space in a few lines: knobs as lists of values, conditions as plain functions."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_core._errors import ConfigError
from chameleon_core._space.design import Constraint, DesignSpace
from chameleon_core._space.fixed import config_of, fixed_space
from chameleon_core._space.knobs import Choice, Knob, Scalar, Values
from chameleon_core._words import did_you_mean

_PROBES = 4096
"""Number of random combinations whose answers identify the conditions of a space that is too large
to list."""

Condition = Callable[..., bool]
"""A function of knob values by name that returns whether these values are legal together."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_TRIES = 8
"""Rounds of random combinations after which a large space counts as empty."""

_REMEMBERED = 1 << 17
"""Number of a condition's answers in the cache: the size of the largest space that is listed."""


def design_space(
    knobs: Mapping[str, Any] | None = None,
    /,
    *,
    where: Condition | Sequence[Condition] | Mapping[str, Condition] = (),
    first: Sequence[Mapping[str, Any]] = (),
    fix: Mapping[str, Any] | None = None,
    **more: Any,
) -> DesignSpace:
    """Declare a design space.

    Args:
        knobs: the values of each knob, by the knob's name. Use this argument for names that cannot
            be keyword arguments. The values are a sequence of numbers or strings, or a ``Knob``.
            Order the values so that neighbours are similar.
        where: conditions that every configuration must meet, such as ``lambda tile, unroll: tile *
            unroll <= 64``. The parameters of a condition are names of knobs. If ``where`` is a
            mapping, its keys name the conditions in error messages. Chameleon calls each condition
            once for every combination of its knobs.
        first: configurations to measure first, each a mapping from knob name to value.
        fix: the value of each knob that must not vary, by the knob's name.
        more: knobs as keyword arguments, with values as in ``knobs``.

    Returns:
        The design space.

    Raises:
        ConfigError: the arguments declare no space, or Chameleon finds no legal configuration. The
            message names the reason.

    Example:
        >>> import chameleon_core as cc
        >>> space = cc.design_space(
        ...     tile=[1, 2, 4, 8],
        ...     unroll=[0, 16, 64],
        ...     where=[lambda tile, unroll: tile * unroll <= 64],
        ... )
        >>> len(space.all_legal)
        8
    """
    declared = _declared(knobs, more)
    if not declared:
        raise ConfigError(
            "a space needs at least one knob",
            hint="give a list of values for each, as in design_space(tile=[1, 2, 4])",
        )
    members = [_knob(name, values) for name, values in declared.items()]
    conditions = _conditions(where, list(declared))
    whole = _made(members, constraints=conditions)
    if conditions:
        if whole.all_legal is not None and not len(whole.all_legal):
            raise ConfigError(
                "no combination of values meets all conditions",
                hint="loosen one of those under 'where', or give more values",
            )
        whole = _made(members, constraints=conditions, variant=(f"allowed: {_allowed(whole)}",))
    if isinstance(first, Mapping):
        raise ConfigError(
            f"'first' must be a list of configurations, not {first!r}",
            hint="write first=[{...}], also for a single one",
        )
    if first:
        rows = np.array([config_of(whole, choice) for choice in first], np.int32)
        whole = _made(members, constraints=conditions, variant=whole.variant, first_guesses=rows)
    if conditions and whole.all_legal is None and not len(whole.first_guesses):
        _must_be_found(whole)
    return fixed_space(whole, whole.columns(fix or {}))


def _declared(knobs: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """All knobs by name; raises an error if a knob is given both in the mapping and by keyword."""
    if not isinstance(knobs, Mapping | None):
        raise ConfigError(
            f"knobs are {knobs!r}, which names none",
            hint="give a list of values for each, as in design_space(tile=[1, 2, 4])",
        )
    first = knobs or {}
    odd = next((name for name in first if not isinstance(name, str)), None)
    if odd is not None:
        raise ConfigError(f"the knob {odd!r} has no text as its name", hint="name it by a text")
    twice = sorted(first.keys() & more.keys())
    if twice:
        raise ConfigError(
            f"knob '{twice[0]}' is given twice", hint="give it in the mapping, or by its keyword"
        )
    return {**first, **more}


def _allowed(space: DesignSpace) -> str:
    """A digest of the combinations that the conditions allow.

    Functions cannot be compared, so the digest tells whether two spaces have the same conditions.
    """
    if space.all_legal is not None:
        before = space.all_legal.tobytes()
    else:
        shape = (_PROBES, len(space.knobs))
        drawn = np.random.default_rng(0).random(shape) * space.cardinalities
        before = space.legal(drawn.astype(np.int32)).tobytes()
    return hashlib.sha256(before).hexdigest()[:16]


def _must_be_found(space: DesignSpace) -> None:
    """Raise an error if random sampling finds no legal configuration in a large space.

    Without this error, the search would end at once, without a reason.
    """
    if not len(space.sample(1, np.random.default_rng(0), tries=_TRIES)):
        raise ConfigError(
            f"no random combination of values, of {space.size:,}, meets all conditions",
            hint="loosen one of those under 'where', or give a configuration that meets them "
            "in 'first'",
        )


def _made(knobs: Sequence[Knob], **more: Any) -> DesignSpace:
    try:
        return DesignSpace(knobs, **more)
    except ValueError as error:
        raise ConfigError(f"this is no space: {error}", hint="see docs/python.md") from error


def _knob(name: str, values: Any) -> Knob:
    if isinstance(values, Knob):
        if values.name != name:
            raise ConfigError(
                f"knob '{name}' is given as one named '{values.name}'",
                hint="give both the same name",
            )
        return values
    if isinstance(values, np.ndarray):
        values = values.tolist()
    # A set has no order, and the order of a set of strings differs between processes.
    if isinstance(values, str | Mapping | AbstractSet) or not hasattr(values, "__iter__"):
        raise ConfigError(
            f"knob '{name}' needs a list of values to choose from, not {values!r}",
            hint="write a list, as in tile=[1, 2, 4, 8]; a single value is a list of one",
        )
    options = [value.item() if isinstance(value, np.generic) else value for value in values]
    # JSON has no such floats, and NaN equals no value that is looked up.
    odd = [o for o in options if not isinstance(o, Scalar) or repr(o) in {"nan", "inf", "-inf"}]
    if odd:
        raise ConfigError(
            f"knob '{name}' has the value {odd[0]!r}, which is neither a number nor a text",
            hint="give texts that stand for such values, and look them up in the function",
        )
    try:
        return Choice(name=name, options=options)
    except ValueError as error:
        raise ConfigError(
            str(error), hint="give distinct values, all numbers or all texts"
        ) from error


def _conditions(
    where: Condition | Sequence[Condition] | Mapping[str, Condition], names: Sequence[str]
) -> list[Constraint]:
    if callable(where):
        where = [where]
    if isinstance(where, Mapping):
        return [_constraint(reason, function, names) for reason, function in where.items()]
    return [
        _constraint(_reason(function, number), function, names)
        for number, function in enumerate(where)
    ]


def _reason(function: Condition, number: int) -> str:
    """The name of a condition for error messages, if the user gave no name."""
    name = getattr(function, "__name__", "<lambda>")
    return f"condition {number} ('where[{number}]')" if name == "<lambda>" else name


def _constraint(reason: str, function: Condition, names: Sequence[str]) -> Constraint:
    if not callable(function):
        raise ConfigError(
            f"{reason} is {function!r}, which cannot be called",
            hint="give functions of knob values, as in lambda tile, unroll: tile * unroll <= 64",
        )
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise ConfigError(
            f"{reason} does not tell its parameters, as functions written in C",
            hint="write a lambda around it, with the names of knobs",
        ) from error
    for name, parameter in parameters.items():
        if name not in names or parameter.kind not in _NAMED:
            raise ConfigError(
                f"{reason} takes '{parameter}', which is no knob{did_you_mean(name, names)}",
                hint="name its parameters as the knobs whose values it takes",
            )
    return Constraint(reason=f"it does not meet {reason}", holds=_Answers(reason, function))


class _Answers:
    """Applies a condition on single values to arrays, and calls it once for every combination."""

    def __init__(self, reason: str, function: Condition) -> None:
        self._names = tuple(inspect.signature(function).parameters)
        self._reason = reason
        self._function = function
        self._answer = functools.lru_cache(_REMEMBERED)(self._ask)

    def __call__(self, values: Values) -> NDArray[np.bool_]:
        columns = [values[name] for name in self._names]
        if not columns:
            return np.array(self._answer(), np.bool_)
        rows = zip(*(_scalars(column) for column in columns), strict=True)
        return np.fromiter((self._answer(*row) for row in rows), np.bool_, len(columns[0]))

    def _ask(self, *row: Any) -> bool:
        arguments = dict(zip(self._names, row, strict=True))
        try:
            return bool(self._function(**arguments))
        except Exception as error:
            raise ConfigError(
                f"{self._reason} raised {type(error).__name__} for {arguments}: {error}",
                hint="it has to say True or False for every combination of values",
            ) from error


def _scalars(column: NDArray[Any]) -> list[Any]:
    """Python values of a column of knob values; factorisations become tuples."""
    values: list[Any] = column.tolist()
    return [tuple(row) for row in values] if column.ndim > 1 else values
