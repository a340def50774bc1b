"""Checks the values that plugins return, and names the plugin that breaks its contract."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import structlog
from numpy.typing import NDArray

from chameleon_core._errors import ChameleonError, PluginError
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._plugins.factory import hint_after
from chameleon_core._plugins.kinds import KINDS
from chameleon_core._space.design import Configs, DesignSpace
from chameleon_core._stages.search import Candidates, Scores, Visited

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class PluginContract:
    """Checks the values that one plugin returns, and names the plugin in errors.

    Attributes:
        noun: the plugin's kind in the singular, such as ``explorer``.
        name: the plugin's name in the pipeline.
    """

    noun: str
    name: str

    @contextlib.contextmanager
    def call(self, doing: str) -> Iterator[None]:
        """Turn a plugin's unexpected exceptions into a ``PluginError`` that names the plugin.

        Subclasses of ``ChameleonError``, which are written for users, are passed on.

        Args:
            doing: the work of the plugin, as in "failed to <doing>".
        """
        try:
            yield
        except ChameleonError:
            raise
        except (Exception, SystemExit) as error:  # a plugin may not end the command
            raise PluginError(
                f"{self.noun} {self.name!r} failed to {doing}: {type(error).__name__}: {error}",
                hint=f"{hint_after(error)}; or choose another one",
            ) from error

    def __str__(self) -> str:
        return f"{self.noun} {self.name!r}"

    def broken(self, what: str) -> PluginError:
        """The error for a plugin that breaks its contract, which the caller raises.

        The argument ``what`` ends the error's message, as in "explorer 'x' <what>".
        """
        return PluginError(
            f"{self.noun} {self.name!r} {what}",
            hint=f"`chameleon plugins check {self.name}` says what else is wrong with it",
        )

    def configs(self, value: Any, space: DesignSpace) -> Configs:
        """Check that a plugin returned an array of configurations of the right shape and dtype.

        The configurations may still be illegal.

        Args:
            value: the value that the plugin returned.
            space: the design space that the configurations belong to.
        """
        array = self._array(value)
        width = len(space.knobs)
        if array.size == 0:
            return np.empty((0, width), np.int32)
        if array.ndim != 2 or array.shape[1] != width:  # noqa: PLR2004 - axes: rows and knobs
            raise self.broken(f"returned an array of shape {array.shape} instead of (n, {width})")
        if not np.issubdtype(array.dtype, np.integer):
            raise self.broken(f"returned {array.dtype} values instead of knob indices")
        return array

    def in_range(self, value: Any, space: DesignSpace) -> Configs:
        """Drop the rows of a plugin's array in which a knob index is out of range.

        The remaining rows may be illegal, or measured before.

        Args:
            value: the array that the plugin returned, shape (n, knobs).
            space: the design space that the configurations belong to.
        """
        configs = self.configs(value, space)
        return configs[((configs >= 0) & (configs < space.cardinalities)).all(axis=1)]

    def usable(self, value: Any, space: DesignSpace, visited: Visited) -> Configs:
        """Keep the legal, distinct and new rows of a plugin's array of configurations, in order.

        The other rows are dropped, and a message about them is logged.

        Args:
            value: the array that the plugin returned, shape (n, knobs).
            space: the design space that the configurations belong to.
            visited: the configurations that were measured before.
        """
        return self._usable(self.configs(value, space), space, visited)[0]

    def candidates(self, value: Any, space: DesignSpace, visited: Visited) -> Candidates:
        """An explorer's candidates, without rows that are illegal, repeated or measured before.

        A candidate's score that is not finite becomes the lowest finite score.

        Args:
            value: the object that the explorer returned.
            space: the design space of the task.
            visited: the configurations that were measured before.
        """
        if not isinstance(value, Candidates):
            raise self.broken(f"returned a {type(value).__name__} instead of Candidates")
        configs = self.configs(value.configs, space)
        scores = self.scores(value.scores, len(configs))
        if (np.diff(scores) > 0.0).any():
            raise self.broken("returned candidates that are not sorted by score, best first")
        usable, rows = self._usable(configs, space, visited)
        return attrs.evolve(value, configs=usable, scores=scores[rows])

    def scores(self, value: Any, count: int) -> Scores:
        """Check the scores that a cost model returned for ``count`` configurations, shape (count,).

        A score that is not finite becomes the lowest finite score, and a warning is logged.

        Args:
            value: the array that the cost model returned.
            count: the number of configurations.
        """
        array = self._array(value)
        if array.shape != (count,) or not np.issubdtype(array.dtype, np.number):
            raise self.broken(
                f"returned {array.dtype} scores of shape {array.shape}, not numbers of ({count},)"
            )
        scores = array.astype(np.float64)
        wrong = ~np.isfinite(scores)
        if wrong.any():
            log.warning(
                "infinite_scores_count_as_lowest",
                kind=self.noun,
                plugin=self.name,
                rows=int(wrong.sum()),
            )
            scores[wrong] = scores[~wrong].min(initial=0.0)
        return scores

    def rows(self, value: Any, count: int) -> NDArray[np.intp]:
        """The valid row numbers in an array that a plugin returned, such as a sampler's choice.

        Row numbers that are repeated, negative or not below ``count`` are dropped. The others keep
        their order.

        Args:
            value: the array that the plugin returned.
            count: the number of rows to choose from.
        """
        array = self._array(value)
        if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not len(array)):
            raise self.broken(f"returned {array.dtype} of shape {array.shape} instead of rows (n,)")
        rows = array[(array >= 0) & (array < count)].astype(np.intp)
        _, first = np.unique(rows, return_index=True)
        return rows[np.sort(first)]

    def _array(self, value: Any) -> NDArray[Any]:
        try:
            return np.asarray(value)
        except (TypeError, ValueError) as error:
            raise self.broken(f"returned no array: {error}") from error

    def _usable(
        self, configs: Configs, space: DesignSpace, visited: Visited
    ) -> tuple[Configs, NDArray[np.intp]]:
        if not len(configs):
            return configs, np.empty(0, np.intp)
        rows = np.flatnonzero(space.legal(configs))
        # Keys identify legal rows only: a row with an index out of range may have the key of
        # another row.
        legal = configs[rows].astype(np.int32)
        _, first = np.unique(space.keys(legal), return_index=True)
        rows, legal = rows[np.sort(first)], legal[np.sort(first)]
        fresh = visited.unvisited(legal)
        if not fresh.all() or len(legal) < len(configs):
            log.debug(
                "unusable_configurations_dropped",
                kind=self.noun,
                plugin=self.name,
                rows=len(configs) - int(fresh.sum()),
            )
        return legal[fresh], rows[fresh]


def contract_of(spec: StageSpec) -> PluginContract:
    """The contract of a stage that the pipeline names."""
    return PluginContract(noun=KINDS[spec.kind].noun, name=spec.name)
