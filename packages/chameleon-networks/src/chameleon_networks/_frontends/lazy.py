"""The frontends that pipeline files name. TVM is imported only when a frontend has to do work."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import (
    ChameleonError,
    ConfigError,
    Delivery,
    Frontend,
    RunFolderError,
    Task,
)
from chameleon_tvm.api import named_object

from chameleon_networks._evaluation.processes import PendingImport, importer_process
from chameleon_networks._importers.options import NetworkOptions
from chameleon_networks._importers.source_checks import check_source
from chameleon_networks._importers.sources import network_of
from chameleon_networks._precision.section import Precision
from chameleon_networks._shapes import Dimension, Shape, buckets_of, dimensions_of

if TYPE_CHECKING:
    from chameleon_networks._frontends.bucketed import ShapeFrontend


log = structlog.get_logger()


class LazyFrontend(Frontend):
    """The frontend of networks, for one input shape or for several buckets of shapes."""

    def __init__(self, options: NetworkOptions) -> None:
        self._options = options
        self._precision: Precision | None = None
        self._pending: PendingImport | None = None

    @cached_property
    def work(self) -> ShapeFrontend:
        """The frontend that does the work, made when needed, because it imports TVM."""
        from chameleon_networks._frontends.bucketed import make_frontend  # noqa: PLC0415 - needs TVM

        work = make_frontend(self._options, self._pending)
        if self._precision is not None:
            work.compute_in(self._precision)
        return work

    def compute_in(self, precision: Precision) -> None:
        if precision.metric is not None and dimensions_of(self._options.shapes):
            count = len(buckets_of(self._options.shapes))
            raise ConfigError(
                f"a metric is of one network, and this one has {count} buckets of shapes, each "
                "with types of its own",
                hint="Bound the error by 'max_error' instead of 'metric' and 'max_drop', or give "
                "each input one shape.",
            )
        self._precision = precision

    def begin(self, threads: int) -> None:
        if not dimensions_of(self._options.shapes) and self._precision is None:
            with contextlib.suppress(ChameleonError, OSError):  # reading raises the error again
                network = network_of(self._options)
                self._pending = PendingImport(network, importer_process(network), threads)
                weakref.finalize(self, self._pending.close)

    def check_source(self) -> None:
        check_source(self._options)
        warn_of_padding(self._options.shapes)
        if self._precision is not None and self._precision.calibrate is not None:
            named_object(self._precision.calibrate, "calibrate")

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage]:
        return self.work.coverage()

    def check(
        self, target: str, threads: int, earlier: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        if earlier is None:
            warn_of_padding(self._options.shapes)
        return self.work.check(target, threads, earlier)

    def decide(self, trials: Frontend.Trials) -> dict[str, Any] | None:
        return self.work.decide(trials)

    def restore(self, decisions: Mapping[str, Any]) -> None:
        self.work.restore(decisions)

    def tasks(self, target: str) -> list[Task]:
        return self.work.tasks(target)

    def deliver(self, delivery: Delivery) -> NetworkResult:
        with RunFolderError.on_full_disk(delivery.folder, self.bytes_needed):
            return self.work.deliver(delivery)

    def bytes_needed(self) -> int:
        return self.work.bytes_needed()

    def usage(self, target: str) -> str:
        del target
        return 'from chameleon_networks import load; network = load("{folder}/network")'


_SLOW = 2
"""How many times their own extent inputs may be padded to without a warning."""


def warn_of_padding(shapes: Mapping[str, Shape]) -> None:
    """Warn of dimensions whose inputs may be padded to more than twice their extent."""
    for dimension in dimensions_of(shapes):
        _warn_once(dimension)


@functools.cache
def _warn_once(dimension: Dimension) -> None:
    gaps = itertools.pairwise((0, *dimension.buckets) if dimension.padded else ())
    below, above = max(gaps, key=lambda gap: gap[1] / (gap[0] + 1), default=(0, 1))
    if above > _SLOW * (below + 1) and not dimension.probes:
        log.warning(
            "padding_is_slow",
            dimension=str(dimension),
            extent=below + 1,
            takes_the_time_of=above,
            hint=f"Write `range: [1, {dimension.buckets[-1]}]` instead of `buckets`, and "
            "Chameleon chooses enough of them.",
        )
