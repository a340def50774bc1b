"""Design spaces in which some knobs have a fixed value, and the reader of users' knob values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_core._errors import ConfigError
from chameleon_core._space.design import ENUMERABLE, Configs, DesignSpace, MixedRadix


def config_of(space: DesignSpace, configuration: Mapping[str, Any]) -> tuple[int, ...]:
    """The knob indices of a configuration that is written as knob values.

    Args:
        space: the design space.
        configuration: knob values by name. Knobs that do not apply may be missing.

    Raises:
        ConfigError: the space has no such knob or value, a knob is missing, or the configuration is
            illegal. The message names the reason.
    """
    if not isinstance(configuration, Mapping):
        raise ConfigError(
            f"{configuration!r} is no configuration",
            hint='name a value of every knob, as in {"tile": 4, "unroll": 16}',
        )
    row = np.zeros((1, len(space.knobs)), np.int32)
    for column, index in space.columns(configuration).items():
        row[0, column] = index
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


class FixedSpace(DesignSpace):
    """A design space in which some knobs have a fixed value.

    The space has those configurations of the whole space in which each fixed knob has its value or
    does not apply. Indices and fingerprint are those of the whole space, so both spaces share
    records.

    Args:
        whole: the whole space.
        fixed: the index of each fixed knob's value, by the knob's column number.
    """

    def __init__(self, whole: DesignSpace, fixed: Mapping[int, int]) -> None:
        self._whole = whole
        self._columns = np.array(sorted(fixed), np.intp)
        self._indices = np.array([fixed[column] for column in sorted(fixed)], np.int32)
        guesses = whole.first_guesses.copy()
        guesses[:, self._columns] = self._indices
        super().__init__(
            whole.knobs,
            constraints=whole.constraints,
            features=whole.features_block,
            guessed_cost=whole.guessed_cost,
            first_guesses=guesses,
            only=self._listing(),
            resolve=whole.resolve,
            variant=whole.variant,
        )
        free = self.cardinalities > 1
        free[self._columns] = False
        self.movable = np.flatnonzero(free)

    def _listing(self) -> Configs | None:
        """All configurations that may be legal, or None if there are too many to list."""
        if self._whole.all_legal is not None:
            return self._whole.all_legal
        spans = self._whole.cardinalities.copy()
        spans[self._columns] = 1
        count = math.prod(spans.tolist())
        if count > ENUMERABLE:
            return None
        rows = MixedRadix(spans.tolist()).decode(np.arange(count)).astype(np.int32)
        rows[:, self._columns] = self._indices
        return self._whole.distinct(self._whole.canonical(rows))

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the whole space."""
        return self._whole.fingerprint

    def _held(self, configs: Configs) -> NDArray[np.bool_]:
        """Whether each configuration has the fixed values for all knobs that apply, shape (n,)."""
        same = configs[:, self._columns] == self._indices
        same |= ~self.active(configs)[:, self._columns]
        holds: NDArray[np.bool_] = same.all(axis=1)
        return holds

    def _narrow(self, configs: Configs, ok: NDArray[np.bool_]) -> NDArray[np.bool_]:
        ok &= self._held(configs)
        return super()._narrow(configs, ok)

    def why_illegal(self, config: Sequence[int]) -> str | None:
        reason = self._whole.why_illegal(config)
        if reason is not None or self._held(np.asarray([config]))[0]:
            return reason
        fixed = {
            self.knobs[column].name: self.knobs[column].decode(int(index))
            for column, index in zip(self._columns, self._indices, strict=True)
        }
        return f"it does not hold the fixed values {fixed}"

    def _random(self, count: int, rng: np.random.Generator) -> Configs:
        drawn = super()._random(count, rng)
        drawn[:, self._columns] = self._indices
        return drawn


def fixed_space(space: DesignSpace, columns: Mapping[int, int]) -> DesignSpace:
    """The part of a space in which some knobs have a fixed value.

    Args:
        space: the whole space.
        columns: the index of each fixed knob's value, by the knob's column number. If ``columns``
            is empty, the whole space is returned.

    Raises:
        ConfigError: no legal configuration has these values.
    """
    if not columns:
        return space
    part = FixedSpace(space, columns)
    if not len(part.sample(1, np.random.default_rng(0))):
        fixed = {space.knobs[c].name: space.knobs[c].decode(i) for c, i in columns.items()}
        raise ConfigError(
            f"no legal configuration has {fixed}",
            hint="fix fewer knobs, or others; the other conditions of the space hold as before",
        )
    return part
