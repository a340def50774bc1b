"""A configuration of a task on a device as tokens: one a knob, one a loop or buffer, and so on.

Tokens of the task and of the device are the same for all configurations, and a knob has one for
each of its choices. So everything about them is looked up. Only what a space computes of a
program's loops and buffers (``FeatureBlock``) is computed for each configuration.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Configs, DesignSpace, recorded_features, recorded_names
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_one_shot.tokens.numbers import named_numbers

Numbers = NDArray[np.float32]

_NAMES = frozenset({"mcpu", "name"})
"""These parts of a device's description are names rather than properties."""


@attrs.frozen(kw_only=True, eq=False)
class FixedToken:
    """A token that all configurations of a task share.

    Attributes:
        name: what it tells of (``task`` or ``device``).
        columns: names of its numbers.
        values: shape (len(columns),).
    """

    name: str
    columns: tuple[str, ...]
    values: Numbers


@attrs.frozen(kw_only=True, eq=False)
class KnobToken:
    """The tokens of a knob, one for each choice.

    Attributes:
        name: the knob's.
        columns: names of its features.
        table: shape (choices, len(columns)); NaN if a choice has no such feature.
    """

    name: str
    columns: tuple[str, ...]
    table: Numbers


@attrs.frozen(kw_only=True, eq=False)
class GroupToken:
    """The token of a loop or buffer.

    Attributes:
        name: of the loop or buffer.
        columns: names of its features.
        places: which columns of the space's analytical features they are.
    """

    name: str
    columns: tuple[str, ...]
    places: NDArray[np.intp]


@attrs.frozen(kw_only=True, eq=False)
class TaskTokens:
    """All tokens that configurations of a task on a device can have.

    Attributes:
        fixed: what they share.
        knobs: in the order of the knobs.
        groups: loops and buffers; none if only the choices of configurations are known.
        space: the design space, or None if only choices are known.
        ignored: names of knobs that count as if they applied to no configuration.
    """

    fixed: tuple[FixedToken, ...]
    knobs: tuple[KnobToken, ...]
    groups: tuple[GroupToken, ...] = ()
    space: DesignSpace | None = None
    ignored: frozenset[str] = frozenset()

    @property
    def parts(self) -> tuple[FixedToken | KnobToken | GroupToken, ...]:
        """All of them."""
        return (*self.fixed, *self.knobs, *self.groups)

    @property
    def columns(self) -> frozenset[str]:
        """Names of all numbers."""
        return frozenset(name for part in self.parts for name in part.columns)

    @property
    def names(self) -> frozenset[str]:
        """Names of all tokens."""
        return frozenset(part.name for part in self.parts)

    def without(self, names: Collection[str]) -> TaskTokens:
        """The same tokens, but for knobs, loops and buffers of these names."""
        groups = tuple(group for group in self.groups if group.name not in names)
        return attrs.evolve(self, groups=groups, ignored=frozenset(names))

    def choices(self, configs: Configs) -> NDArray[np.int64]:
        """The choice of each knob, and the number of its choices if it does not apply.

        Args:
            configs: shape (n, knobs).

        Returns:
            Shape (n, knobs).
        """
        configs = np.asarray(configs, np.int64)
        counts = np.array([len(knob.table) for knob in self.knobs], np.int64)
        applies = configs >= 0 if self.space is None else self.space.active(configs)
        known = np.array([knob.name not in self.ignored for knob in self.knobs], np.bool_)
        return np.where(applies & known, configs, counts)

    def structure(self, configs: Configs) -> Numbers:
        """Analytical features and the logarithm of the guessed cost, as far as a space has them.

        Returns:
            Shape (n, columns of the space's block, and one for the guess).
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
        """Every number, and its values over n configurations.

        Args:
            configs: shape (n, knobs).

        Yields:
            A name, and shape (n,) with NaN if a configuration has no such number; shape (1,) for
            what all share.
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
    """The tokens of a task with a design space.

    Args:
        task: the task.
        device: its description (``StageContext.device``).
        threads: that kernels run with.
        space: the task's.
    """
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
    """Tokens of loops, buffers and the guess, in the terms of ``TaskTokens.structure``."""
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
    """The tokens of configurations of which only the choices are known.

    Args:
        task: as for ``task_tokens``.
        device: as there.
        threads: as there.
        choices: of each of n configurations, knob name to plain value.

    Returns:
        The tokens, and the configurations as indices into them, shape (n, knobs): -1 if a
        configuration has no such knob.
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
        names = recorded_names(values)
        table = recorded_features(values, names)
        tokens.append(KnobToken(name=knob, columns=names, table=table))
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
