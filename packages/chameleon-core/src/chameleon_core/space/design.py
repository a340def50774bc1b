"""Design spaces as integer index arrays of shape (n, knobs) (design rule 1)."""

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

from chameleon_core.space.knobs import Knob, Values

Configs = NDArray[np.int32]
"""Configurations as knob indices, shape (n, knobs)."""

Keys = NDArray[Any]
"""Identities of configurations, shape (n,): int64, or Python ints where the space is larger."""


@attrs.frozen(kw_only=True)
class Constraint:
    """A condition every legal configuration meets.

    Attributes:
        reason: what is wrong with a configuration that does not, as a short sentence.
        holds: vectorised over n configurations: knob values to a bool array of shape (n,).
    """

    reason: str
    holds: Callable[[Values], NDArray[np.bool_]]


@attrs.frozen(kw_only=True)
class FeatureBlock:
    """Analytical features a space supplies beside those of its knobs.

    Attributes:
        names: one per column.
        compute: knob values of n configurations to an array of shape (n, len(names)).
    """

    names: tuple[str, ...]
    compute: Callable[[Values], NDArray[np.floating[Any]]]


class _LazyValues(Mapping[str, NDArray[Any]]):
    """Knob values looked up only for the knobs that a predicate reads."""

    def __init__(self, knobs: Mapping[str, tuple[int, NDArray[Any]]], configs: Configs) -> None:
        self._knobs = knobs
        self._configs = configs

    def __getitem__(self, name: str) -> NDArray[Any]:
        column, table = self._knobs[name]
        chosen: NDArray[Any] = table[self._configs[:, column]]
        return chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)


class DesignSpace:
    """Named knobs, which combinations are legal, and their features.

    Args:
        knobs: in order; names are unique.
        constraints: what a legal configuration meets.
        features: analytical features beside the knobs' own.
        start: configurations worth measuring first, best guess first, shape (m, knobs).

    Raises:
        ValueError: no knob, a name twice, or a ``when`` that names no earlier knob.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        *,
        constraints: Sequence[Constraint] = (),
        features: FeatureBlock | None = None,
        start: Configs | None = None,
    ) -> None:
        self.knobs = tuple(knobs)
        self.constraints = tuple(constraints)
        self.features_block = features
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
        self.start = (
            np.empty((0, len(self.knobs)), np.int32) if start is None else self.canonical(start)
        )

    @property
    def size(self) -> int:
        """Number of index vectors, legal or not (an exact int of any size)."""
        return math.prod(int(c) for c in self.cardinalities)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of knobs and constraints; records of another fingerprint do not apply."""
        described = [
            [type(k).__name__, k.name, k.when, np.asarray(k.values).tolist()] for k in self.knobs
        ]
        reasons = [constraint.reason for constraint in self.constraints]
        return hashlib.sha256(json.dumps([described, reasons]).encode()).hexdigest()[:16]

    # -- identity ---------------------------------------------------------------------------

    def canonical(self, configs: Configs) -> Configs:
        """The same configurations with every inactive knob (see ``Knob.when``) at index 0."""
        configs = np.array(configs, dtype=np.int32, ndmin=2)
        for column, knob in enumerate(self.knobs):
            if knob.when is not None:
                active = np.isin(configs[:, self.index[knob.when[0]]], knob.when[1])
                configs[~active, column] = 0
        return configs

    def keys(self, configs: Configs) -> Keys:
        """Mixed-radix identity of every configuration, shape (n,)."""
        configs = np.asarray(configs)
        dtype: type = np.int64 if self.size < 2**63 else object
        keys = np.zeros(len(configs), dtype=dtype)
        for column, cardinality in enumerate(self.cardinalities.tolist()):
            keys = keys * cardinality + configs[:, column].astype(dtype)
        return keys

    def from_keys(self, keys: Keys) -> Configs:
        """The inverse of ``keys``."""
        rest = np.array(keys, copy=True)
        configs = np.empty((len(rest), len(self.knobs)), dtype=np.int32)
        for column in range(len(self.knobs) - 1, -1, -1):
            cardinality = int(self.cardinalities[column])
            configs[:, column] = (rest % cardinality).astype(np.int32)
            rest = rest // cardinality
        return configs

    # -- meaning ----------------------------------------------------------------------------

    def values(self, configs: Configs) -> Values:
        """Knob values of n configurations, as a mapping of arrays, computed when read."""
        return _LazyValues(self._tables, np.asarray(configs))

    def decode(self, config: Sequence[int]) -> dict[str, Any]:
        """One configuration as knob name to plain value."""
        return {k.name: k.decode(int(i)) for k, i in zip(self.knobs, config, strict=True)}

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        """Which configurations are in range, canonical and meet every constraint; shape (n,)."""
        configs = np.asarray(configs)
        ok = ((configs >= 0) & (configs < self.cardinalities)).all(axis=1)
        ok[ok] = (self.canonical(configs[ok]) == configs[ok]).all(axis=1)
        for constraint in self.constraints:
            rows = np.flatnonzero(ok)
            if not len(rows):
                break
            ok[rows] = constraint.holds(self.values(configs[rows]))
        return ok

    def why_illegal(self, config: Sequence[int]) -> str | None:
        """The first reason a configuration is not legal, or None."""
        row = np.asarray([config])
        if row.shape[1] != len(self.knobs) or ((row < 0) | (row >= self.cardinalities)).any():
            return "a knob index is out of range"
        if (self.canonical(row) != row).any():
            return "a knob that does not apply is set"
        for constraint in self.constraints:
            if not constraint.holds(self.values(row))[0]:
                return constraint.reason
        return None

    # -- features ---------------------------------------------------------------------------

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the feature columns: the knobs' own, then the analytical ones."""
        names = tuple(name for knob in self.knobs for name in knob.feature_names)
        return names + (self.features_block.names if self.features_block else ())

    def features(self, configs: Configs) -> NDArray[np.float32]:
        """Features of n configurations, shape (n, len(feature_names))."""
        configs = np.asarray(configs)
        out = np.empty((len(configs), len(self.feature_names)), dtype=np.float32)
        offset = 0
        for column, table in enumerate(self._feature_tables):
            out[:, offset : offset + table.shape[1]] = table[configs[:, column]]
            offset += table.shape[1]
        if self.features_block is not None:
            out[:, offset:] = self.features_block.compute(self.values(configs))
        return out

    @cached_property
    def _feature_tables(self) -> tuple[NDArray[np.float32], ...]:
        return tuple(knob.feature_table for knob in self.knobs)

    # -- moves ------------------------------------------------------------------------------

    def sample(self, count: int, rng: np.random.Generator, *, tries: int = 64) -> Configs:
        """Distinct legal configurations, uniform over the index vectors that are legal.

        Returns at most ``count`` rows: fewer where the space has fewer, or where ``tries``
        rounds of rejection found no more.
        """
        if self.size <= max(4096, 4 * count):
            everything = self.from_keys(np.arange(self.size))
            everything = everything[self.legal(everything)]
            return everything[rng.permutation(len(everything))[:count]]
        found = np.empty((0, len(self.knobs)), dtype=np.int32)
        batch = max(count, 256)
        for _ in range(tries):
            drawn = rng.integers(0, self.cardinalities, (batch, len(self.knobs)), dtype=np.int32)
            drawn = self.canonical(drawn)
            found = self.distinct(np.concatenate([found, drawn[self.legal(drawn)]]))
            if len(found) >= count:
                break
            batch = min(2 * batch, 1 << 16)
        return found[:count]

    def distinct(self, configs: Configs) -> Configs:
        """The configurations without repeats, in order of first appearance."""
        _, first = np.unique(self.keys(configs), return_index=True)
        return np.asarray(configs)[np.sort(first)]

    def mutate(self, configs: Configs, rng: np.random.Generator) -> Configs:
        """Each configuration with one random knob moved to another random value.

        The move of AutoTVM's simulated annealing. Illegal results stay unchanged.
        """
        configs = np.asarray(configs, dtype=np.int32)
        movable = np.flatnonzero(self.cardinalities > 1)
        if not len(movable):
            return configs.copy()
        rows = np.arange(len(configs))
        column = movable[rng.integers(0, len(movable), len(configs))]
        cardinality = self.cardinalities[column]
        shift = rng.integers(1, cardinality)
        moved = configs.copy()
        moved[rows, column] = (configs[rows, column] + shift) % cardinality
        moved = self.canonical(moved)
        illegal = ~self.legal(moved)
        moved[illegal] = configs[illegal]
        return moved

    def neighbours(self, config: Sequence[int]) -> Configs:
        """Legal configurations one index step away in one knob, shape (m, knobs)."""
        base = np.asarray(config, dtype=np.int32)
        width = len(self.knobs)
        steps = np.concatenate([np.eye(width, dtype=np.int32), -np.eye(width, dtype=np.int32)])
        near = base + steps
        near = near[((near >= 0) & (near < self.cardinalities)).all(axis=1)]
        near = self.distinct(self.canonical(near)) if len(near) else near
        return near[self.legal(near) & (near != base).any(axis=1)]
