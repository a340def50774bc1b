"""A batch of one task: its configurations, the stages that proposed them, and its measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import attrs
import numpy as np
import structlog

from chameleon_core._measurement import Measurement
from chameleon_core._space.design import Configs, DesignSpace
from chameleon_core._stages.search import Visited

Config = tuple[int, ...]

log = structlog.get_logger()


Origins = Mapping[Config, Measurement.Origin]


def tuples(configs: Configs) -> list[Config]:
    """Convert an array of configurations, shape (n, knobs), to tuples of Python integers."""
    return [tuple(row) for row in configs.tolist()]


def searched(
    batch: Iterable[Config], *, candidates: Iterable[Config], selected: Iterable[Config]
) -> dict[Config, Measurement.Origin]:
    """The stage that proposed each configuration of a batch.

    Args:
        batch: the configurations that the synthesizer returned for ``selected``.
        candidates: the configurations that the explorer proposed.
        selected: the configurations that the sampler selected.
    """
    explored, sampled = set(candidates), set(selected)

    def origin(config: Config) -> Measurement.Origin:
        if config not in sampled:
            return Measurement.Origin.SYNTHESIZER
        return Measurement.Origin.EXPLORER if config in explored else Measurement.Origin.SAMPLER

    return {config: origin(config) for config in batch}


@attrs.frozen(kw_only=True)
class Search:
    """How the explorer found a batch. The default values are those of a batch without a search.

    Attributes:
        steps: the number of the explorer's search steps.
        converged: the search step after which the best predicted score rose no more.
        score: the best predicted score, or None if no trained cost model guided the search.
        short: the stage that proposed too few usable configurations, for messages. None if every
            stage proposed enough.
    """

    steps: int = 0
    converged: int = 0
    score: float | None = None
    short: str | None = None


@attrs.frozen(kw_only=True, eq=False)
class Proposal:
    """The configurations that a tuner proposes to measure next.

    Attributes:
        configs: the configurations, array of shape (n, knobs).
        origins: the stage that proposed each configuration.
        scores: the scores that a trained cost model predicted, for the configurations that it was
            asked about.
        search: the explorer's search steps and best predicted score.
    """

    configs: Configs
    origins: Origins = MappingProxyType({})
    scores: Mapping[Config, float] = MappingProxyType({})
    search: Search = Search()


class Batch:
    """Configurations that are proposed, measured and learnt together.

    The batch is the only place that keeps the state of its configurations; other code changes the
    state through the batch's methods.

    Args:
        proposal: the proposed configurations.
        stored: the task's measurements that are already in the store, by configuration.

    Attributes:
        proposal: the proposed configurations, with their origins and scores.
        configs: the configurations in proposal order.
        stored: the number of configurations whose measurements the store held when they were
            proposed.
        submitted: whether this process measures, or has measured, any configuration of the batch.
        seconds: wall-clock time in seconds from the batch's submission to its latest measurement.
    """

    def __init__(self, proposal: Proposal, stored: Mapping[Config, Measurement]) -> None:
        self.proposal = proposal
        self.configs = tuple(tuples(proposal.configs))
        self._measured = {config: stored[config] for config in self.configs if config in stored}
        self._missing = [config for config in self.configs if config not in stored]
        self.stored = len(self._measured)
        self.submitted = False
        self.seconds = 0.0
        self._began = 0.0

    @property
    def missing(self) -> tuple[Config, ...]:
        """Configurations without a measurement; empty if the batch is complete."""
        return tuple(self._missing)

    @property
    def size(self) -> int:
        """Number of configurations in the batch: measured ones and missing ones."""
        return len(self._measured) + len(self._missing)

    @property
    def measurements(self) -> list[Measurement]:
        """The measurements of the batch so far, in the order in which it was proposed.

        They come from the store and from the runner.
        """
        return [self._measured[config] for config in self.configs if config in self._measured]

    def shorten(self, size: int) -> None:
        """Drop configurations from the end of the batch, so that at most ``size`` remain.

        A budget that is nearly used up needs this. Configurations that have a measurement always
        remain, so more than ``size`` may be left.

        """
        del self._missing[max(0, size - len(self._measured)) :]

    def submit(self, now: float) -> None:
        """Record that the measurement of the batch begins.

        Args:
            now: the current time of the runner's clock, in seconds.
        """
        self.submitted, self._began = True, now

    def arrive(self, measurement: Measurement, now: float) -> None:
        """Record the measurement of one configuration.

        Args:
            measurement: the measurement of a configuration that had none before.
            now: the current time of the runner's clock, in seconds.

        Raises:
            ValueError: the configuration is not missing.
        """
        self._missing.remove(measurement.config)
        self._measured[measurement.config] = measurement
        self.seconds = now - self._began


class Programs:
    """Selects configurations whose compiled programs are all different and new.

    Args:
        space: the task's design space.
        visited: the configurations that must not be proposed again. This object adds configurations
            that have no program, or the same program as another configuration, so that explorers
            avoid them.
        at_once: the number of configurations whose programs the compiler determines at a time.

    Attributes:
        asked: the configuration that was proposed, by the configuration that the compiler compiles
            in its place. Configurations that are compiled as proposed are left out.
    """

    def __init__(self, space: DesignSpace, visited: Visited, *, at_once: int) -> None:
        self.asked: dict[Config, Config] = {}
        self._space = space
        self._visited = visited
        self._at_once = at_once

    def append_new(self, batch: Configs, more: Configs, most: int | None = None) -> Configs:
        """Append configurations to a batch, except illegal ones and those proposed before.

        If two configurations result in the same program, only the first one is kept.

        Args:
            batch: the configurations of the batch, shape (n, knobs). All are different programs.
            more: the configurations to append, shape (m, knobs).
            most: the largest number of rows to return, or None for no limit. If the batch has
                ``most`` rows, the remaining configurations are not examined.

        Returns:
            The rows of ``batch``, then the appended rows.
        """
        more = self._new(more)
        if self._space.resolve is None:
            return self._space.distinct(np.concatenate([batch, more]).astype(np.int32))[:most]
        for start in range(0, len(more), self._at_once):
            if most is not None and len(batch) >= most:
                break
            asked = more[start : start + self._at_once]
            rows = self._space.resolved(asked)
            others = (rows != asked).any(axis=1)
            self._visited.add(asked[others])
            for before, after in zip(tuples(asked[others]), tuples(rows[others]), strict=True):
                self.asked.setdefault(after, before)
            batch = self._space.distinct(np.concatenate([batch, self._new(rows)]).astype(np.int32))
        return batch[:most]

    def _new(self, configs: Configs) -> Configs:
        configs = configs[self._space.legal(configs)]
        return configs[self._visited.unvisited(configs)]


@attrs.define(kw_only=True)
class FallbackWatch:
    """Logs a warning, once for each stage, if over half of the proposals are fallbacks.

    A fallback is a configuration, such as a random one, that replaces an unusable proposal of a
    stage. With so many fallbacks, the run hardly uses the search algorithm that the user chose.

    Fallbacks in the last batch of a small space cause no warning, because few of its configurations
    are new.
    """

    _searched: int = attrs.field(default=0, init=False)
    _replaced: int = attrs.field(default=0, init=False)
    _named: set[str] = attrs.field(factory=set, init=False)

    def see(self, task: str, batch: Batch) -> None:
        """Count the fallbacks in a batch, and warn if most configurations so far are fallbacks.

        A fallback is a configuration, such as a random one, in the place of an unusable one. The
        warning names the stage that proposed too few usable configurations.

        Args:
            task: the task's name.
            batch: a proposed batch of the task.
        """
        short = batch.proposal.search.short
        fallbacks = [
            origin
            for origin in batch.proposal.origins.values()
            if origin not in {Measurement.Origin.INITIAL, Measurement.Origin.SUGGESTION}
        ]
        self._searched += len(fallbacks)
        self._replaced += fallbacks.count(Measurement.Origin.FALLBACK)
        if short is None or short in self._named or 2 * self._replaced <= self._searched:
            return
        self._named.add(short)
        log.warning(
            "random_configurations_measured",
            reason="the stage gives too few configurations that are legal and not measured yet",
            stage=short,
            task=task,
            random=self._replaced,
            of=self._searched,
        )
