"""Design spaces as integer index arrays of shape (n, knobs), and numbers that identify rows."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core._errors import ConfigError
from chameleon_core._space.knobs import Knob, Values, recorded_features
from chameleon_core._words import did_you_mean

_WORD_LIMIT = 2**63
"""A word encodes knobs with fewer combinations than this, so that it fits an int64."""

_BITMAP_LIMIT = 1 << 20
"""Spaces of at most this many index vectors keep a flag for each vector, for the fastest
look-up."""


class MixedRadix:
    """Gives each configuration of a space a number, in the lexicographic order of knob indices.

    A number consists of int64 words, of which almost every design space needs only one. For larger
    spaces, ``encode`` returns Python integers.

    Args:
        cardinalities: the number of values of each knob, at least 1.
    """

    def __init__(self, cardinalities: Sequence[int]) -> None:
        self.cardinalities = tuple(int(c) for c in cardinalities)
        self._words = tuple(self._pack())

    def _pack(self) -> Iterator[tuple[slice, NDArray[np.int64], int]]:
        """For each word: its columns, the weight of each column, and the number of its values."""
        start = 0
        while start < len(self.cardinalities):
            stop, radix = start, 1
            while stop < len(self.cardinalities) and radix * self.cardinalities[stop] < _WORD_LIMIT:
                radix *= self.cardinalities[stop]
                stop += 1
            weights = np.ones(stop - start, np.int64)
            weights[:-1] = np.cumprod(self.cardinalities[start + 1 : stop][::-1])[::-1]
            yield slice(start, stop), weights, radix
            start = stop

    def encode(self, configs: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """The number of each configuration, shape (n,): int64, or Python integers if too large.

        Args:
            configs: knob indices, shape (n, knobs).
        """
        keys: NDArray[Any]
        # The most significant word comes first.
        keys, *rest = self._encoded(configs)
        if rest:
            keys = keys.astype(object)
            for word, (_, _, radix) in zip(rest, self._words[1:], strict=True):
                keys = keys * radix + word.astype(object)
        return keys

    def _encoded(self, configs: NDArray[np.integer[Any]]) -> list[NDArray[np.int64]]:
        """The number of each configuration as one array of shape (n,) for each word."""
        return [configs[:, columns] @ weights for columns, weights, _ in self._words]

    def decode(self, keys: NDArray[Any]) -> NDArray[np.int32]:
        """The configurations that have these numbers, shape (n, knobs)."""
        rest = np.asarray(keys)
        configs = np.empty((len(rest), len(self.cardinalities)), np.int32)
        for columns, weights, radix in reversed(self._words):
            word = (rest % radix).astype(np.int64)
            rest = rest // radix
            configs[:, columns] = word[:, None] // weights % self.cardinalities[columns]
        return configs

    def first_of_each(self, configs: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
        """Row numbers without repetitions: the first row of each distinct configuration, ascending.

        Args:
            configs: knob indices, shape (n, knobs).
        """
        words = np.stack(self._encoded(configs))
        # Words are sorted one by one, because Python integers of several words take far longer.
        order = np.lexsort(words)
        first = np.ones(len(order), np.bool_)
        first[1:] = (np.diff(words[:, order]) != 0).any(axis=0)
        return np.sort(order[first])


class ConfigSet:
    """A set of configurations that tests many configurations for membership at once.

    Args:
        radix: the object that gives each configuration its number.
        size: the number of all index vectors of the space.
        configs: the members, shape (m, knobs).

    Attributes:
        keys: the numbers of the members, ascending and distinct, shape (m,).

    Raises:
        ValueError: ``configs`` is empty.
    """

    def __init__(self, radix: MixedRadix, size: int, configs: NDArray[np.integer[Any]]) -> None:
        if not len(configs):
            raise ValueError("a space that lists its configurations needs at least one")
        self.keys = np.unique(radix.encode(np.asarray(configs)))
        self._flags: NDArray[np.bool_] | None = None
        if size <= _BITMAP_LIMIT:
            self._flags = np.zeros(size, np.bool_)
            self._flags[self.keys] = True

    @property
    def digest(self) -> str:
        """A digest of the members."""
        return hashlib.sha256(",".join(map(str, self.keys.tolist())).encode()).hexdigest()[:16]

    def holds(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each number is the number of a member, shape (n,)."""
        if self._flags is not None:
            return np.asarray(self._flags[keys], np.bool_)
        positions = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.asarray(self.keys[positions] == keys, np.bool_)


Resolve = Callable[[tuple[int, ...]], Sequence[int] | None]
"""A function of a legal configuration that returns the configuration which is really compiled. This
is the same one, another one that the compiler uses instead, or None if there is no program. A call
may take milliseconds, so it is made only for configurations that are about to be measured."""


Configs = NDArray[np.int32]
"""Configurations as knob indices, shape (n, knobs)."""


@attrs.frozen(kw_only=True)
class Constraint:
    """A condition that every legal configuration must meet.

    Attributes:
        reason: a short clause about an illegal configuration, which says why it breaks the
            condition.
        holds: a function of the knob values of n configurations, which returns a bool array of
            shape (n,). It is called only for configurations that meet all earlier constraints of
            the space.
    """

    reason: str
    holds: Callable[[Values], NDArray[np.bool_]]


class ChosenValues(Mapping[str, NDArray[Any]]):
    """A mapping from a knob's name to its value in each configuration, computed on first use.

    Args:
        knobs: the column of each knob and the table of its values, by name.
        configs: knob indices, shape (n, knobs).
    """

    def __init__(self, knobs: Mapping[str, tuple[int, NDArray[Any]]], configs: Configs) -> None:
        self._knobs = knobs
        self._configs = configs
        self._chosen: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        chosen = self._chosen.get(name)
        if chosen is None:
            column, table = self._knobs[name]
            chosen = self._chosen[name] = table.take(self._configs[:, column], axis=0)
        return chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)


ENUMERABLE = 1 << 17
"""Spaces of at most this many index vectors are sampled from a list of all legal configurations."""

_MAX_DRAW = 1 << 16
"""Largest number of index vectors in one round of rejection sampling. It limits the memory, not the
result."""


class DesignSpace:
    """The knobs of a program, their legal combinations, and features for cost models.

    Args:
        knobs: the knobs in order, with unique names.
        constraints: conditions that every legal configuration meets.
        features: numbers for cost models that the space computes from configurations.
        guessed_cost: the space's own estimate of the cost: a function of the knob values of n
            configurations, which returns positive numbers of shape (n,). Lower is better. The
            unit is the time that the task's operations take at the device's full rate, so that
            schedulers can compare tasks. Predictors that learn from many tasks also learn how far
            to trust the estimate. The estimate is not among the features.
        first_guesses: configurations to measure first, best guess first, shape (m, knobs). Illegal
            and repeated rows are dropped.
        only: the only configurations that can be legal, shape (m, knobs), as in a recorded table.
            If None, only the constraints decide.
        resolve: a function of one configuration, which returns the configuration that the compiler
            really compiles for it, or None if there is no program. If ``resolve`` is None, each
            configuration is compiled as it is.
        variant: options of the space that change its programs, but not its knobs or constraints.
            They are part of the fingerprint.

    Attributes:
        movable: the columns of the knobs that have at least two values, and in a ``FixedSpace`` are
            not fixed.

    Raises:
        ValueError: there is no knob, a name occurs twice, or a knob's ``when`` names no earlier
            knob or no value of it.
    """

    @attrs.frozen(kw_only=True)
    class FeatureBlock:
        """Analytical features: numbers that a space computes from configurations, for cost models.

        Cost models learn from these numbers, and from the features of knobs
        (``Knob.feature_table``).

        Attributes:
            names: the name of each column.
            compute: a function of the knob values of n configurations, which returns an array of
                shape (n, len(names)).
            groups: the names of columns for each loop or buffer, by its name. A column is in at
                most one group. By default, one group holds all columns. Models that read a program
                loop by loop use the groups; the fingerprint of a space does not depend on them.

        Raises:
            ValueError: a group has a column that does not exist or that another group has.
        """

        names: tuple[str, ...]
        compute: Callable[[Values], NDArray[np.floating[Any]]]
        groups: tuple[tuple[str, tuple[str, ...]], ...] = attrs.field()

        @groups.default
        def _one_group(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
            return (("structure", self.names),)

        @groups.validator
        def _check(
            self, _attribute: object, groups: tuple[tuple[str, tuple[str, ...]], ...]
        ) -> None:
            grouped = [column for _, columns in groups for column in columns]
            unknown = sorted(set(grouped) - set(self.names))
            if unknown:
                raise ValueError(f"groups of features name {unknown}, which are no columns")
            if len(set(grouped)) != len(grouped):
                raise ValueError("groups of features name a column twice")

    def __init__(
        self,
        knobs: Sequence[Knob],
        *,
        constraints: Sequence[Constraint] = (),
        features: FeatureBlock | None = None,
        guessed_cost: Callable[[Values], NDArray[np.floating[Any]]] | None = None,
        first_guesses: Configs | None = None,
        only: Configs | None = None,
        resolve: Resolve | None = None,
        variant: Sequence[str] = (),
    ) -> None:
        self.knobs = tuple(knobs)
        self.constraints = tuple(constraints)
        self.features_block = features
        self.guessed_cost = guessed_cost
        self.resolve = resolve
        self.variant = tuple(variant)
        if not self.knobs:
            raise ValueError("a design space needs at least one knob")
        self.index = {knob.name: column for column, knob in enumerate(self.knobs)}
        if len(self.index) != len(self.knobs):
            raise ValueError("two knobs of a design space have one name")
        for column, knob in enumerate(self.knobs):
            if knob.when is not None and self.index.get(knob.when[0], column) >= column:
                raise ValueError(f"knob {knob.name!r} depends on a knob that does not precede it")
        self.cardinalities = np.array([knob.cardinality for knob in self.knobs], dtype=np.int64)
        self._tables = {k.name: (c, np.asarray(k.values)) for c, k in enumerate(self.knobs)}
        self._radix = MixedRadix(self.cardinalities.tolist())
        self.movable = np.flatnonzero(self.cardinalities > 1)
        self._conditions = tuple(self._condition(c) for c, k in enumerate(self.knobs) if k.when)
        self._listed = None if only is None else ConfigSet(self._radix, self.size, only)
        none: Configs = np.empty((0, len(self.knobs)), np.int32)
        guesses = self.canonical(none if first_guesses is None else first_guesses)
        guesses = self.resolved(guesses[self.legal(guesses)])
        self.first_guesses = self.distinct(guesses[self.legal(guesses)])

    @cached_property
    def guess(self) -> float | None:
        """The estimated cost of the first guess; None if the space has no estimate or no guess."""
        if self.guessed_cost is None or not len(self.first_guesses):
            return None
        return float(self.guessed_cost(self.values(self.first_guesses[:1]))[0])

    def resolved(self, configs: Configs) -> Configs:
        """Replace each configuration by the configuration that the compiler really compiles for it.

        Args:
            configs: legal configurations, shape (n, knobs).

        Returns:
            One row for each configuration, shape (n, knobs). If a configuration has no program, all
            entries of its row are -1, which is not legal.
        """
        if self.resolve is None:
            return configs
        answers = [self.resolve(tuple(row)) for row in configs.tolist()]
        none = (-1,) * configs.shape[1]
        rows = [none if config is None else config for config in answers]
        return np.array(rows, np.int32).reshape(configs.shape)

    def knob(self, name: str) -> Knob:
        """The knob of a name.

        Raises:
            ConfigError: the space has no such knob.
        """
        if name not in self.index:
            raise ConfigError(
                f"there is no knob '{name}'{did_you_mean(name, self.index)}",
                hint=f"the knobs are {', '.join(self.index)}",
            )
        return self.knobs[self.index[name]]

    def columns(self, values: Mapping[str, object]) -> dict[int, int]:
        """The column number of each given knob, with the index of its value.

        Args:
            values: knob values by the name of the knob.

        Raises:
            ConfigError: the space has no such knob, or the knob has no such value.
        """
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"fixed knobs are {values!r}, which says no values of them",
                hint='name the value of each, as in fix={"tile": 4}',
            )
        knobs = ((self.knob(name), value) for name, value in values.items())
        return {self.index[knob.name]: knob.encode(value) for knob, value in knobs}

    @staticmethod
    def recorded_features(
        choices: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None
    ) -> tuple[Sequence[str], NDArray[np.float32]]:
        """Compute ``features`` from recorded knob values, without the design space.

        A feature is NaN if only the space can compute it (``FeatureBlock``), or if the
        configuration lacks the feature's knob.

        Args:
            choices: n configurations in the form that ``decode`` returns. Values may be lists
                instead of tuples, as after reading JSON.
            names: names of features, as in ``feature_names``. If None, all features that can be
                computed, in order of first appearance.

        Returns:
            The names of the features, and the features of shape (n, len(names)).
        """
        return recorded_features(choices, names)

    def _condition(self, column: int) -> tuple[int, int, NDArray[np.bool_]]:
        """A conditional knob's column, its parent's column, and the parent's activating indices."""
        when = self.knobs[column].when
        assert when is not None  # noqa: S101 - narrows the type; callers checked
        parent = self.index[when[0]]
        activates = np.zeros(self.cardinalities[parent], np.bool_)
        if not all(0 <= i < len(activates) for i in when[1]):
            name = self.knobs[column].name
            raise ValueError(f"knob {name!r} depends on a choice that {when[0]!r} does not have")
        activates[list(when[1])] = True
        return column, parent, activates

    @cached_property
    def size(self) -> int:
        """Number of all vectors of knob indices, legal and illegal ones, as an exact integer."""
        return math.prod(self.cardinalities.tolist())

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the space's knobs, constraints and variant.

        Records of a space with another fingerprint do not apply to this space.
        """
        described = [
            [type(k).__name__, k.name, k.when, np.asarray(k.values).tolist()] for k in self.knobs
        ]
        reasons = [constraint.reason for constraint in self.constraints]
        if self._listed is not None:
            reasons.append(self._listed.digest)
        reasons += [f"variant: {name}" for name in self.variant]
        return hashlib.sha256(json.dumps([described, reasons]).encode()).hexdigest()[:16]

    # -- identity ---------------------------------------------------------------------------

    def active(self, configs: Configs) -> NDArray[np.bool_]:
        """Whether each knob has an effect in each configuration (``Knob.when``), shape (n, knobs).

        A knob does not apply if the knob that it depends on has another value or does not apply.

        Args:
            configs: knob indices, shape (n, knobs).
        """
        active = np.ones(np.shape(configs), np.bool_)
        for column, parent, activates in self._conditions:
            chosen = activates.take(configs[:, parent], mode="clip")
            np.logical_and(active[:, parent], chosen, out=active[:, column])
        return active

    def canonical(self, configs: Configs) -> Configs:
        """Set the index to 0 for every knob that does not apply, in each configuration.

        Two configurations that differ only in such knobs would describe the same program.

        Args:
            configs: knob indices, shape (n, knobs).
        """
        configs = np.array(configs, dtype=np.int32, ndmin=2)
        if self._conditions:
            configs[~self.active(configs)] = 0
        return configs

    def keys(self, configs: Configs) -> NDArray[Any]:
        """A unique number for each configuration, shape (n,)."""
        return self._radix.encode(np.asarray(configs))

    def from_keys(self, keys: NDArray[Any]) -> Configs:
        """The configurations with the given numbers, the inverse of ``keys``."""
        return self._radix.decode(keys)

    def distinct(self, configs: Configs) -> Configs:
        """The configurations without repeats, in order of first appearance."""
        configs = np.asarray(configs)
        return configs[self._radix.first_of_each(configs)]

    # -- meaning ----------------------------------------------------------------------------

    def values(self, configs: Configs) -> Values:
        """The value of each knob in n configurations, an array of n values by knob name.

        An array is computed when it is first read.
        """
        return ChosenValues(self._tables, np.asarray(configs))

    def decode(self, config: Sequence[int]) -> dict[str, Any]:
        """The values of one configuration by knob name."""
        return {k.name: k.decode(int(i)) for k, i in zip(self.knobs, config, strict=True)}

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        """Whether each configuration is legal, shape (n,).

        A legal configuration has indices in range, index 0 for knobs that do not apply, and meets
        every constraint.

        Args:
            configs: knob indices, shape (n, knobs).
        """
        configs = np.asarray(configs)
        in_range = (configs >= 0) & (configs < self.cardinalities)
        ok: NDArray[np.bool_] = np.logical_and.reduce(in_range, axis=1)
        if self._conditions:
            ok &= ~((configs != 0) & ~self.active(configs)).any(axis=1)
        return self._narrow(configs, ok)

    def _narrow(self, configs: Configs, ok: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Set ``ok`` to False for rows that break a constraint, and return it."""
        rows = np.flatnonzero(ok)
        if self._listed is not None and len(rows):
            ok[rows] = self._listed.holds(self.keys(configs[rows]))
            rows = np.flatnonzero(ok)
        values = self.values(configs if len(rows) == len(ok) else configs[rows])
        for constraint in self.constraints:
            if not len(rows):
                break
            holds = np.broadcast_to(constraint.holds(values), rows.shape)
            if not holds.all():
                ok[rows[~holds]] = False
                rows = rows[holds]
                values = self.values(configs[rows])
        return ok

    def why_illegal(self, config: Sequence[int]) -> str | None:
        """The first reason why a configuration is illegal, or None if it is legal.

        Args:
            config: the knob indices of one configuration.
        """
        row = np.asarray([config])
        if row.shape != (1, len(self.knobs)):
            return f"a configuration of this space has {len(self.knobs)} knob indices"
        if ((row < 0) | (row >= self.cardinalities)).any():
            return "a knob index is out of range"
        if (self.canonical(row) != row).any():
            return "a knob that does not apply is set"
        if self._listed is not None and not self._listed.holds(self.keys(row)).all():
            return "it is not among the configurations that the space lists"
        for constraint in self.constraints:
            if not np.all(constraint.holds(self.values(row))):
                return constraint.reason
        return None

    # -- features ---------------------------------------------------------------------------

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of ``features``: first those of knobs, then the analytical ones."""
        names = tuple(name for knob in self.knobs for name in knob.feature_names)
        return names + (self.features_block.names if self.features_block else ())

    def features(self, configs: Configs) -> NDArray[np.float32]:
        """The features of each configuration, from which cost models learn.

        The shape is (n, len(feature_names)).

        Args:
            configs: knob indices, shape (n, knobs).
        """
        configs = np.asarray(configs)
        out = np.empty((len(configs), len(self.feature_names)), dtype=np.float32)
        offset = 0
        for column, table in enumerate(self._feature_tables):
            out[:, offset : offset + table.shape[1]] = table.take(configs[:, column], axis=0)
            offset += table.shape[1]
        if self.features_block is not None:
            out[:, offset:] = self.features_block.compute(self.values(configs))
        return out

    @cached_property
    def _feature_tables(self) -> tuple[NDArray[np.float32], ...]:
        return tuple(knob.feature_table for knob in self.knobs)

    # -- moves ------------------------------------------------------------------------------

    @cached_property
    def all_legal(self) -> Configs | None:
        """All legal configurations, shape (m, knobs); None if too many to list."""
        if self._listed is not None:
            rows = self.from_keys(self._listed.keys)
        elif self.size <= ENUMERABLE:
            rows = self.from_keys(np.arange(self.size))
        else:
            return None
        return rows[self.legal(rows)]

    def _random(self, count: int, rng: np.random.Generator) -> Configs:
        """Random index vectors, shape (count, knobs)."""
        shape = (count, len(self.knobs))
        # Scaled floats, because NumPy takes five times as long for integers with a bound per
        # column.
        return (rng.random(shape) * self.cardinalities).astype(np.int32)

    def sample(self, count: int, rng: np.random.Generator, *, tries: int = 64) -> Configs:
        """Draw distinct legal configurations at random, shape (at most ``count``, knobs).

        If every knob always applies, or if the space is small, all legal configurations are equally
        likely. If a large space has knobs that apply only for some values of another knob, the
        values of each knob are equally likely instead. A value for which few other knobs apply is
        then drawn as often as a value for which many other knobs apply.

        The result has fewer than ``count`` rows if the space has fewer, or if ``tries`` rounds of
        rejection sampling find no more.

        Args:
            count: the number of configurations to draw.
            rng: the random generator.
            tries: the largest number of rounds of rejection sampling.
        """
        if self.all_legal is not None:
            return self.all_legal[rng.permutation(len(self.all_legal))[:count]]
        rows = [np.empty((0, len(self.knobs)), dtype=np.int32)]
        total, batch = 0, min(max(count, 256), _MAX_DRAW)
        for _ in range(tries):
            drawn = self.canonical(self._random(batch, rng))
            fresh = drawn[self._narrow(drawn, np.ones(batch, np.bool_))]
            rows.append(fresh)
            total += len(fresh)
            if total >= count:
                # Repeats are removed only at this point, because this sorts all rows.
                rows = [self.distinct(np.concatenate(rows))]
                total = len(rows[0])
                if total >= count:
                    break
            # Draw enough for the missing rows, from the rate of legal rows so far; draw more if
            # none was legal.
            wanted = 1.1 * (count - total) * batch / max(len(fresh), 0.25)
            batch = int(np.clip(wanted, 256, min(4 * batch, _MAX_DRAW)))
        return self.distinct(np.concatenate(rows))[:count]

    def mutate(self, configs: Configs, rng: np.random.Generator) -> Configs:
        """Change one random knob of each configuration to another random value.

        This is the move of AutoTVM's simulated annealing. Only knobs that apply are changed. If the
        result is illegal, the row keeps its old configuration.

        Args:
            configs: knob indices of legal configurations, shape (n, knobs).
            rng: the random generator.
        """
        configs = np.asarray(configs, dtype=np.int32)
        count = len(configs)
        movable = self.movable
        if not len(movable) or not count:
            return configs.copy()
        if self._conditions:
            lots = rng.random((count, len(movable)))
            lots[~self.active(configs)[:, movable]] = -1.0
            column = movable[lots.argmax(axis=1)]
        else:
            column = movable[rng.integers(0, len(movable), count)]
        rows = np.arange(count)
        cardinality = self.cardinalities[column]
        shift = 1 + (rng.random(count) * (cardinality - 1)).astype(np.int64)
        moved = configs.copy()
        moved[rows, column] = (configs[rows, column] + shift) % cardinality
        moved = self.canonical(moved)
        illegal = ~self._narrow(moved, np.ones(count, np.bool_))
        moved[illegal] = configs[illegal]
        return moved

    def neighbours(self, config: Sequence[int]) -> Configs:
        """The legal neighbours of a configuration, shape (m, knobs).

        A neighbour differs by one index step in one knob.

        Args:
            config: the knob indices of the configuration.
        """
        base = np.asarray(config, dtype=np.int32)
        width = len(self.knobs)
        steps = np.concatenate([np.eye(width, dtype=np.int32), -np.eye(width, dtype=np.int32)])
        near = base + steps
        near = near[((near >= 0) & (near < self.cardinalities)).all(axis=1)]
        near = self.distinct(self.canonical(near)) if len(near) else near
        legal: Configs = near[self.legal(near) & (near != base).any(axis=1)]
        return legal
