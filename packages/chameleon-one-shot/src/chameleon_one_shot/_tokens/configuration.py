"""The tokens of a configuration, which describe its task, device, knobs, loops and buffers.

Tokens of the task and the device are the same for all configurations, and a knob has one token per
choice. So these tokens are looked up in tables. Only features of loops and buffers
(``FeatureBlock``) are computed for each configuration.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Task, recorded_features
from numpy.typing import NDArray

from chameleon_one_shot._tokens.numbers import named_numbers

Numbers = NDArray[np.float32]

_NAMES = frozenset({"mcpu", "name"})
"""Parts of a device's description that are names and not properties."""


@attrs.frozen(kw_only=True, eq=False)
class FixedToken:
    """A token (an input of a predictor) that all configurations of a task share.

    Attributes:
        values: The token's numbers, shape (len(columns),).
    """

    name: str
    columns: tuple[str, ...]
    values: Numbers


@attrs.frozen(kw_only=True, eq=False)
class KnobToken:
    """The tokens (inputs of a predictor) that describe a knob, one for each choice.

    Attributes:
        table: The features of each choice, shape (choices, len(columns)); NaN if a choice lacks a
            feature.
    """

    name: str
    columns: tuple[str, ...]
    table: Numbers


@attrs.frozen(kw_only=True, eq=False)
class GroupToken:
    """The token (an input of a predictor) that describes a loop or a buffer.

    Attributes:
        columns: The names of the loop's or buffer's features.
        places: For each feature, the index of its column in ``TaskTokens.structure``.
    """

    name: str
    columns: tuple[str, ...]
    places: NDArray[np.intp]


@attrs.frozen(kw_only=True, eq=False)
class TaskTokens:
    """All tokens (inputs of a predictor) that configurations of a task on a device can have.

    Attributes:
        knobs: The tokens of the knobs, in the order of the knobs.
        groups: The tokens of loops and buffers; empty if the design space is unknown.
        space: The design space; None if only knob values are known.
        ignored: The names of knobs that are treated as if they applied to no configuration.
    """

    fixed: tuple[FixedToken, ...]
    knobs: tuple[KnobToken, ...]
    groups: tuple[GroupToken, ...] = ()
    space: DesignSpace | None = None
    ignored: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[FixedToken | KnobToken | GroupToken, ...]:
        """All tokens: fixed ones, knobs, then loops and buffers."""
        return (*self.fixed, *self.knobs, *self.groups)

    @property
    def columns(self) -> frozenset[str]:
        """The names of all numbers."""
        return frozenset(name for part in self.parts for name in part.columns)

    @property
    def names(self) -> frozenset[str]:
        """The names of all tokens."""
        return frozenset(part.name for part in self.parts)

    def without(self, names: Collection[str]) -> TaskTokens:
        """A copy of these tokens without some loops and buffers, and with some knobs ignored."""
        groups = tuple(group for group in self.groups if group.name not in names)
        return attrs.evolve(self, groups=groups, ignored=frozenset(names))

    def choices(self, configs: Configs) -> NDArray[np.int64]:
        """The choice of each knob, as an index into the knob's tokens.

        Args:
            configs: The configurations, shape (n, knobs).

        Returns:
            Indices of shape (n, knobs).
        """
        configs = np.asarray(configs, np.int64)
        counts = np.array([len(knob.table) for knob in self.knobs], np.int64)
        applies = configs >= 0 if self.space is None else self.space.active(configs)
        known = np.array([knob.name not in self.ignored for knob in self.knobs], np.bool_)
        return np.where(applies & known, configs, counts)

    def structure(self, configs: Configs) -> Numbers:
        """Features of loops and buffers, and the logarithm of the estimated cost.

        Args:
            configs: The configurations, shape (n, knobs).

        Returns:
            Numbers of shape (n, columns): the columns of the space's feature block, and one for the
            cost. Columns that the space does not have are left out.
        """
        space = self.space
        if space is None:
            return np.empty((len(configs), 0), np.float32)
        values = space.values(configs)
        parts = [np.empty((len(configs), 0), np.float32)]
        if space.features_block is not None:
            parts.append(np.asarray(space.features_block.compute(values), np.float32))
        if space.guessed_cost is not None:
            parts.append(np.log(space.guessed_cost(values)).astype(np.float32)[:, None])
        return np.concatenate(parts, axis=1)

    def values(self, configs: Configs) -> Iterator[tuple[str, Numbers]]:
        """Yield every number that the tokens consist of, with its values over n configurations.

        Args:
            configs: The configurations, shape (n, knobs).

        Yields:
            The name of a number and its values, shape (n,), with NaN if a configuration lacks it.
                Numbers that all configurations share have shape (1,).
        """
        for fixed in self.fixed:
            yield from ((name, fixed.values[at : at + 1]) for at, name in enumerate(fixed.columns))
        for knob, chosen in zip(self.knobs, self.choices(configs).T, strict=True):
            missing = np.full((1, len(knob.columns)), np.nan, np.float32)
            rows = np.concatenate([knob.table, missing])[chosen]
            yield from ((name, rows[:, at]) for at, name in enumerate(knob.columns))
        structure = self.structure(configs)
        for group in self.groups:
            yield from (
                (name, structure[:, column])
                for name, column in zip(group.columns, group.places, strict=True)
            )


def task_tokens(
    task: Task, device: Mapping[str, Any], threads: int, space: DesignSpace
) -> TaskTokens:
    """Make the tokens (inputs of a predictor) of a task whose design space is known."""
    return TaskTokens(
        fixed=_shared(task, device, threads),
        knobs=tuple(
            KnobToken(name=knob.name, columns=knob.feature_names, table=knob.feature_table)
            for knob in space.knobs
        ),
        groups=tuple(_groups(space)),
        space=space,
    )


def _groups(space: DesignSpace) -> Iterator[GroupToken]:
    """The tokens of loops, buffers and the estimated cost, for ``TaskTokens.structure``."""
    block = space.features_block
    names = () if block is None else block.names
    columns_of = {name: at for at, name in enumerate(names)}
    for name, columns in () if block is None else block.groups:
        yield GroupToken(
            name=f"{name}[]",  # no knob has such a name
            columns=tuple(f"{name}[].{column}" for column in columns),
            places=np.array([columns_of[column] for column in columns], np.intp),
        )
    if space.guessed_cost is not None:
        yield GroupToken(
            name="guess[]", columns=("guess[].cost",), places=np.array([len(names)], np.intp)
        )


def recorded_tokens(
    task: Task, device: Mapping[str, Any], threads: int, choices: Sequence[Mapping[str, Any]]
) -> tuple[TaskTokens, Configs]:
    """Make the tokens (inputs of a predictor) of configurations from their knob values alone.

    Returns:
        The tokens, and the configurations. A configuration has, for each knob, the row of its value
        in the knob's table of tokens, so the shape is (n, knobs). The row is -1 if a configuration
        does not have the knob.
    """
    knobs = tuple(dict.fromkeys(name for choice in choices for name in choice))
    tokens, indices = [], np.full((len(choices), len(knobs)), -1, np.int32)
    for column, knob in enumerate(knobs):
        met: dict[str, int] = {}
        values: list[dict[str, Any]] = []
        for row, choice in enumerate(choices):
            if knob not in choice:
                continue
            text = json.dumps(choice[knob])
            if text not in met:
                met[text] = len(met)
                values.append({knob: choice[knob]})
            indices[row, column] = met[text]
        names, table = recorded_features(values)
        tokens.append(KnobToken(name=knob, columns=tuple(names), table=table))
    return TaskTokens(fixed=_shared(task, device, threads), knobs=tuple(tokens)), indices


def _shared(task: Task, device: Mapping[str, Any], threads: int) -> tuple[FixedToken, ...]:
    # A processor's name says nothing that its features and sizes do not, and no other has it.
    properties = {name: value for name, value in device.items() if name not in _NAMES}
    return (
        _fixed(
            "task",
            named_numbers("operator", task.operator)
            | named_numbers("flop", task.flop)
            | named_numbers(task.operator, task.arguments),
        ),
        _fixed("device", named_numbers("threads", threads) | named_numbers("device", properties)),
    )


def _fixed(name: str, numbers: Mapping[str, float]) -> FixedToken:
    values = np.array(list(numbers.values()), np.float32)
    return FixedToken(name=name, columns=tuple(numbers), values=values)
