"""A batch of one task: what was asked and where it came from, what is missing, what arrived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

import attrs
import numpy as np
import structlog

from chameleon_core.measurement import Measurement
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.space.design import resolved
from chameleon_core.stages import Visited

Config = tuple[int, ...]

log = structlog.get_logger()


class Origin(StrEnum):
    """The stage that proposed a configuration."""

    INITIAL = "initial"
    """A first guess of the space, or a random configuration of the batch before any search."""

    SUGGESTION = "suggestion"
    """The best of another task of the run or of an earlier run, or what somebody enqueued."""

    EXPLORER = "explorer"
    """A candidate of the explorer that the sampler kept."""

    SAMPLER = "sampler"
    """The sampler's own, which was no candidate."""

    SYNTHESIZER = "synthesizer"
    """What the synthesizer put in the place of another one."""

    RECORD = "record"
    """A record of another run, which was not measured here."""

    FALLBACK = "fallback"
    """What the loop took where the stages gave nothing that is legal and new: first guesses that
    were left over, random configurations, neighbours of measured ones."""


Origins = Mapping[Config, Origin]


def tuples(configs: Configs) -> list[Config]:
    """The rows of an array, shape (n, knobs), as tuples of Python's own integers."""
    return [tuple(row) for row in configs.tolist()]


def searched(
    batch: Iterable[Config], *, candidates: Iterable[Config], selected: Iterable[Config]
) -> dict[Config, Origin]:
    """Which stage each configuration of a searched batch came from.

    Args:
        batch: what the synthesizer made of ``selected``.
        candidates: the explorer's.
        selected: the sampler's.
    """
    explored, sampled = set(candidates), set(selected)

    def origin(config: Config) -> Origin:
        if config not in sampled:
            return Origin.SYNTHESIZER
        return Origin.EXPLORER if config in explored else Origin.SAMPLER

    return {config: origin(config) for config in batch}


@attrs.frozen(kw_only=True)
class Search:
    """How a batch was searched for; as it is here where nothing was.

    Attributes:
        steps: search steps of the explorer.
        converged: the step of these after which the best surrogate score rose no more.
        score: that surrogate score, or None where no trained cost model guided the walk.
        short: the stage that gave too few usable configurations, in words, or None.
    """

    steps: int = 0
    converged: int = 0
    score: float | None = None
    short: str | None = None


class Batch:
    """Configurations that are proposed, measured and learnt together.

    Their state is kept here alone; others change it by the methods below.

    Args:
        configs: in proposal order.
        stored: what the store has of their task.
        origins: what put each of them into the batch.
        search: how they were found.
        scores: what a trained cost model said of them, as far as it was asked.

    Attributes:
        configs: in proposal order.
        origins: what put each of them into the batch.
        scores: what a trained cost model said of them, as far as it was asked.
        search: how they were found.
        stored: how many of them the store had when they were proposed.
        submitted: whether something of it is, or was, measured by this process.
        seconds: wall-clock between its submission and its latest arrival.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        *,
        stored: Mapping[Config, Measurement],
        origins: Origins,
        search: Search = Search(),
        scores: Mapping[Config, float] = MappingProxyType({}),
    ) -> None:
        self.configs = tuple(configs)
        self.origins = origins
        self.search = search
        self.scores = scores
        self._measured = {config: stored[config] for config in configs if config in stored}
        self._missing = [config for config in configs if config not in stored]
        self.stored = len(self._measured)
        self.submitted = False
        self.seconds = 0.0
        self._began = 0.0

    @property
    def missing(self) -> tuple[Config, ...]:
        """Configurations that are not measured yet; empty once the batch is complete."""
        return tuple(self._missing)

    @property
    def size(self) -> int:
        """Configurations that are learnt with it: those that a budget has left in it."""
        return len(self._measured) + len(self._missing)

    @property
    def measurements(self) -> list[Measurement]:
        """Measurements from the store and the runner, in the order of the proposals."""
        return [self._measured[config] for config in self.configs if config in self._measured]

    def shorten(self, size: int) -> None:
        """Leave out what was proposed last of the missing ones, so that ``size`` are learnt."""
        del self._missing[max(0, size - len(self._measured)) :]

    def submit(self, now: float) -> None:
        """Note that it is measured from now on.

        Args:
            now: seconds on the runner's clock.
        """
        self.submitted, self._began = True, now

    def arrive(self, measurement: Measurement, now: float) -> None:
        """Note that a configuration was measured.

        Args:
            measurement: of a missing configuration.
            now: seconds on the runner's clock.

        Raises:
            ValueError: the configuration is not missing.
        """
        self._missing.remove(measurement.config)
        self._measured[measurement.config] = measurement
        self.seconds = now - self._began


class Programs:
    """Tells which configurations are programs that nobody has proposed yet.

    Args:
        space: the task's design space.
        visited: what is not to be proposed; what turns out to be another program, or none, is
            added, so that explorers leave it alone.
        at_once: how many programs are made before it is seen whether that is enough.

    Attributes:
        asked: for configurations that others turned out to be, the first of those.
    """

    def __init__(self, space: DesignSpace, visited: Visited, *, at_once: int) -> None:
        self.asked: dict[Config, Config] = {}
        self._space = space
        self._visited = visited
        self._at_once = at_once

    def joined(self, batch: Configs, more: Configs, most: int | None = None) -> Configs:
        """A batch, and of other configurations what is legal and new.

        Args:
            batch: distinct programs.
            more: any configurations.
            most: how many rows to return at most, and to make programs of.
        """
        more = self._new(more)
        if self._space.resolve is None:
            return self._space.distinct(np.concatenate([batch, more]).astype(np.int32))[:most]
        for start in range(0, len(more), self._at_once):
            if most is not None and len(batch) >= most:
                break
            asked = more[start : start + self._at_once]
            rows = resolved(self._space.resolve, asked)
            others = (rows != asked).any(axis=1)
            self._visited.add(asked[others])
            for before, after in zip(tuples(asked[others]), tuples(rows[others]), strict=True):
                self.asked.setdefault(after, before)
            batch = self._space.distinct(np.concatenate([batch, self._new(rows)]).astype(np.int32))
        return batch[:most]

    def _new(self, configs: Configs) -> Configs:
        configs = configs[self._space.legal(configs)]
        return configs[self._visited.fresh(configs)]


@attrs.define(kw_only=True)
class FallbackWatch:
    """Logs once for each stage of a run that a fallback does most of the stage's work.

    The last batch of a small space is no reason to log, since little in it is new.
    """

    _searched: int = attrs.field(default=0, init=False)
    _replaced: int = attrs.field(default=0, init=False)
    _named: set[str] = attrs.field(factory=set, init=False)

    def see(self, task: str, batch: Batch) -> None:
        """Look at a batch.

        Args:
            task: the task's name.
            batch: one of its batches.
        """
        short = batch.search.short
        fallbacks = [
            origin
            for origin in batch.origins.values()
            if origin not in {Origin.INITIAL, Origin.SUGGESTION}
        ]
        self._searched += len(fallbacks)
        self._replaced += fallbacks.count(Origin.FALLBACK)
        if short is None or short in self._named or 2 * self._replaced <= self._searched:
            return
        self._named.add(short)
        log.warning(
            "a stage gives too few configurations that are legal and not measured yet; "
            "random ones are measured in their place",
            stage=short,
            task=task,
            random=self._replaced,
            of=self._searched,
        )
