"""The tokens of a configuration, which describe its task, device, knobs, loops and buffers.

Tokens of the task, the device and the choices of knobs are looked up in tables. Only features of
loops and buffers (``FeatureBlock``) are computed for each configuration.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Task
from numpy.typing import NDArray

from chameleon_one_shot._tokens.numbers import named_numbers

Numbers = NDArray[np.float32]

_NAMES = frozenset({"mcpu", "name"})
"""Parts of a device's description that are names and not properties."""


@attrs.frozen(kw_only=True, eq=False)
class FixedToken:
    """A token that all configurations of a task share.

    Attributes:
        values: the token's numbers, shape (len(columns),).
    """

    name: str
    columns: tuple[str, ...]
    values: Numbers


@attrs.frozen(kw_only=True, eq=False)
class KnobToken:
    """The tokens that describe a knob, one for each choice.

    Attributes:
        table: the features of each choice, shape (choices, len(columns)); NaN if a choice lacks
            one.
    """

    name: str
    columns: tuple[str, ...]
    table: Numbers


@attrs.frozen(kw_only=True, eq=False)
class GroupToken:
    """The token that describes a loop or a buffer.

    Attributes:
        columns: the names of the loop's or buffer's features.
        columns_of_structure: for each feature, the index of its column in ``TaskTokens.structure``.
    """

    name: str
    columns: tuple[str, ...]
    columns_of_structure: NDArray[np.intp]


@attrs.frozen(kw_only=True, eq=False)
class TaskTokens:
    """All tokens that configurations of a task on a device can have.

    Attributes:
        groups: the tokens of loops and buffers; empty if the design space is unknown.
        space: the design space; None if only knob values are known.
        ignored: the names of knobs that are treated as if they applied to no configuration.
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
        return frozenset(name for part in self.parts for name in part.columns)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(part.name for part in self.parts)

    def without(self, names: Collection[str]) -> TaskTokens:
        """A copy of these tokens without some loops and buffers, and with some knobs ignored."""
        groups = tuple(group for group in self.groups if group.name not in names)
        return attrs.evolve(self, groups=groups, ignored=frozenset(names))

    def choices(self, configs: Configs) -> NDArray[np.int64]:
        """The choice of each knob, as an index into the knob's tokens, shape (n, knobs)."""
        configs = np.asarray(configs, np.int64)
        counts = np.array([len(knob.table) for knob in self.knobs], np.int64)
        applies = configs >= 0 if self.space is None else self.space.active(configs)
        known = np.array([knob.name not in self.ignored for knob in self.knobs], np.bool_)
        return np.where(applies & known, configs, counts)

    def structure(self, configs: Configs) -> Numbers:
        """Features of loops and buffers, and the log of the estimated cost, shape (n, columns)."""
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
        """Yield the name of every number and its values over n configurations.

        The shape is (n,), with NaN if a configuration lacks it, or (1,) if all share it.
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
                for name, column in zip(group.columns, group.columns_of_structure, strict=True)
            )


def task_tokens(
    task: Task, device: Mapping[str, Any], threads: int, space: DesignSpace
) -> TaskTokens:
    """The tokens of a task whose design space is known."""
    return TaskTokens(
        fixed=_fixed_tokens(task, device, threads),
        knobs=tuple(
            KnobToken(name=knob.name, columns=knob.feature_names, table=knob.feature_table)
            for knob in space.knobs
        ),
        groups=tuple(_groups(space)),
        space=space,
    )


def _groups(space: DesignSpace) -> Iterator[GroupToken]:
    """The tokens of loops, buffers and the estimated cost."""
    block = space.features_block
    names = () if block is None else block.names
    columns_of = {name: at for at, name in enumerate(names)}
    for name, columns in () if block is None else block.groups:
        yield GroupToken(
            name=f"{name}[]",  # no knob has such a name
            columns=tuple(f"{name}[].{column}" for column in columns),
            columns_of_structure=np.array([columns_of[column] for column in columns], np.intp),
        )
    if space.guessed_cost is not None:
        yield GroupToken(
            name="guess[]",
            columns=("guess[].cost",),
            columns_of_structure=np.array([len(names)], np.intp),
        )


def recorded_tokens(
    task: Task, device: Mapping[str, Any], threads: int, choices: Sequence[Mapping[str, Any]]
) -> tuple[TaskTokens, Configs]:
    """The tokens and configurations (n, knobs) from knob values alone.

    An index is a row in the knob's table, or -1 if a configuration lacks the knob.
    """
    knobs = tuple(dict.fromkeys(name for choice in choices for name in choice))
    tokens, indices = [], np.full((len(choices), len(knobs)), -1, np.int32)
    for column, knob in enumerate(knobs):
        index_of: dict[str, int] = {}
        values: list[dict[str, Any]] = []
        for row, choice in enumerate(choices):
            if knob not in choice:
                continue
            text = json.dumps(choice[knob])
            if text not in index_of:
                index_of[text] = len(index_of)
                values.append({knob: choice[knob]})
            indices[row, column] = index_of[text]
        names, table = DesignSpace.recorded_features(values)
        tokens.append(KnobToken(name=knob, columns=tuple(names), table=table))
    return TaskTokens(fixed=_fixed_tokens(task, device, threads), knobs=tuple(tokens)), indices


def _fixed_tokens(task: Task, device: Mapping[str, Any], threads: int) -> tuple[FixedToken, ...]:
    # A processor's name would only identify it.
    properties = {name: value for name, value in device.items() if name not in _NAMES}
    return (
        _fixed_token(
            "task",
            named_numbers("operator", task.operator)
            | named_numbers("flop", task.flop)
            | named_numbers(task.operator, task.arguments),
        ),
        _fixed_token(
            "device", named_numbers("threads", threads) | named_numbers("device", properties)
        ),
    )


def _fixed_token(name: str, numbers: Mapping[str, float]) -> FixedToken:
    values = np.array(list(numbers.values()), np.float32)
    return FixedToken(name=name, columns=tuple(numbers), values=values)
