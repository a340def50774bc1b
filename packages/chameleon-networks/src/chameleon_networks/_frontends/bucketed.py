"""The frontends of networks with one shape, and of networks for several buckets of shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import ConfigError, Delivery, Frontend, TargetError, Task

from chameleon_networks._artifact.buckets import Buckets, PaddedCall
from chameleon_networks._artifact.dispatch import uncompiled_buckets
from chameleon_networks._checks.check import Facts
from chameleon_networks._checks.padding import check_padding, check_pads
from chameleon_networks._compile.lowered_networks import LoweredNetwork, open_dimension
from chameleon_networks._compile.open_dimension import OpenDimension
from chameleon_networks._compile.open_layouts import NotOpenError
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._compile.sequence.calls import NotStaticError
from chameleon_networks._delivery.buckets import delivered
from chameleon_networks._evaluation.processes import PendingImport
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.relax_utils import counted_axes
from chameleon_networks._importers.imported_network import BucketedNetwork, BucketInputs
from chameleon_networks._importers.options import NetworkOptions
from chameleon_networks._importers.sources import network_of
from chameleon_networks._precision.section import Precision
from chameleon_networks._shapes import Bucket, dimensions_of

log = structlog.get_logger()

Extents = tuple[int, ...]
"""One extent for each dimension of the inputs that has several."""


class BucketedFrontend(Frontend):
    """The frontend of a network that is compiled for several input shapes (buckets).

    Attributes:
        networks: Pairs of a bucket and the frontend of the bucket's network, the smallest shapes
            first.
        is_exact: Whether outputs are right only if calls compute their part of a bucket alone.
    """

    def __init__(self, network: BucketedNetwork) -> None:
        self.network = network
        self.is_exact = False
        self._extents = [dimension.buckets for dimension in network.dimensions]
        self._lowered: dict[tuple[Extents, str], LoweredNetwork] = {}
        self._opened: dict[tuple[Extents, Extents, str], OpenDimension | None] = {}
        self.networks = [(bucket, NetworkFrontend(own)) for bucket, own in network.networks]
        for bucket, own in network.networks:
            own.bucket = BucketInputs(name=bucket.name, padded_call=self._padded_call)

    @property
    def by_bucket(self) -> dict[str, NetworkFrontend]:
        """The frontend of each bucket's network, by the name of the bucket."""
        return {bucket.name: frontend for bucket, frontend in self.networks}

    def compute_in(self, precision: Precision) -> None:
        for _, network in self.networks:
            network.compute_in(precision)

    def _padded_call(self, *inputs: Any) -> PaddedCall:
        return self._dispatch.padded_call(*inputs)

    @cached_property
    def _dispatch(self) -> Buckets:
        """An object that chooses buckets as the delivered network will, and runs none."""
        return uncompiled_buckets(self.network)

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage]:
        _, smallest = self.networks[0]
        return smallest.coverage()

    def check(self, target: str, threads: int, earlier: Mapping[str, Any] | None) -> Facts | None:
        checks: Facts = {}
        for bucket, network in self._checked:
            before = None if earlier is None else earlier["buckets"].get(bucket.name)
            try:
                checked = network.check(target, threads, before)
            except (ConfigError, TargetError) as error:
                raise type(error)(f"bucket {bucket.name}: {error}", hint=error.hint) from error
            if checked is not None:
                checks[bucket.name] = checked
        if not checks:
            return None
        self._refuse_state()
        for _, network in self.networks:
            # They are known by the weights' digests, and all buckets have the same weights.
            network.network.cancellations = self._checked[-1][1].network.cancellations
        check_pads(self.network)
        # Runs of earlier versions have checked padding, and say nothing else.
        exact = self._computes_parts(target) if earlier is None else earlier.get("exact", False)
        self.is_exact = exact
        if earlier is not None:
            padding = earlier["padding"]
        elif self.is_exact:
            padding = ["a call computes its own size alone"]
        else:
            padding = check_padding(self.network, threads)
        self.network.padding_checked = not self.is_exact
        return {
            "buckets": checks,
            "exact": self.is_exact,
            "padding": padding,
            "summary": "; ".join([*_summaries(checks), *padding]),
        }

    @property
    def _checked(self) -> list[tuple[Bucket, NetworkFrontend]]:
        """The buckets that are checked before tuning: of a range, the smallest and the largest."""
        return [self.networks[0], self.networks[-1]] if self.network.is_open else self.networks

    def decide(self, trials: Frontend.Trials) -> Facts | None:
        if self.network.is_open:
            self._keep_fewer(trials.target)
        shared = _Share(trials, len(self.networks))
        decisions = {}
        for bucket, network in self.networks:
            network.decide(shared)
            decisions[bucket.name] = network.decisions()
        return {"buckets": decisions, "summary": "; ".join(_summaries(decisions))}

    def restore(self, decisions: Mapping[str, Any]) -> None:
        self._keep(decisions["buckets"])
        for bucket, network in self.networks:
            network.restore(decisions["buckets"][bucket.name])

    def _keep_fewer(self, target: str) -> None:
        """Keep fewer buckets of a range if a call may compute a part of its bucket."""
        number = self._open_number
        if number is None or self._dimension(len(self.networks) - 1, target) is None:
            return
        buckets = self.network.dimensions[number].spread_out()
        names = [bucket.name for bucket, _ in self.networks if bucket.extents[number] in buckets]
        self._keep(names)
        # Small networks may have other operators, and a larger bucket then takes their calls.
        names = [
            bucket.name
            for place, (bucket, _) in enumerate(self.networks)
            if bucket.extents[number] == 1 or self._dimension(place, target) is not None
        ]
        if len(names) > 1:  # outputs are cut by how they differ between two
            self._keep(names)
        log.info("buckets_chosen", buckets=names)

    def _keep(self, names: Collection[str]) -> None:
        """Keep the buckets of these names."""
        self.network.keep(names)
        self.networks = [pair for pair in self.networks if pair[0].name in names]
        self.__dict__.pop("_dispatch", None)

    def _refuse_state(self) -> None:
        """Refuse networks with a state or with outputs whose sizes depend on values."""
        if state := self.networks[0][1].network.state:
            raise ConfigError(
                f"the network changes its buffer {state[0]!r}, and buckets of shapes cannot share "
                "such a state",
                hint="Give each input one shape.",
            )
        if counted_axes(self.networks[0][1].network.imported["main"]):
            raise ConfigError(
                "the sizes of outputs depend on values, and buckets of shapes could not cut them",
                hint="Give each input one shape.",
            )

    def tasks(self, target: str) -> list[Task]:
        self._refuse_state()
        return self._together([network.tasks(target) for _, network in self.networks])

    def named_tasks(self, target: str) -> list[Task]:
        """The same tasks as ``tasks``, without checking the weights."""
        return self._together([network.named_tasks(target) for _, network in self.networks])

    def _together(self, tasks: Sequence[Sequence[Task]]) -> list[Task]:
        """The distinct tasks of all buckets, each weighted by its occurrences in all of them."""
        union: dict[str, Task] = {}
        first: dict[str, str] = {}
        replaced: dict[str, str] = {}
        for (bucket, _), own in zip(self.networks, tasks, strict=True):
            keys = {task.name: task.key for task in own}
            for task in own:
                known = union.get(task.key)
                weight = task.weight + (0 if known is None else known.weight)
                # A task that any bucket needs in the original dtype is not an alternative, even if
                # it is one in another bucket.
                if known is None or (known.alternative_of and not task.alternative_of):
                    known = task
                union[task.key] = attrs.evolve(known, weight=weight)
                first.setdefault(task.key, bucket.name)
                if task.alternative_of:
                    replaced.setdefault(task.key, keys[task.alternative_of])
        named = Counter(task.name for task in union.values())
        names = {
            key: task.name if named[task.name] == 1 else f"{task.name}@{first[key]}"
            for key, task in union.items()
        }
        return [
            attrs.evolve(
                task,
                name=names[key],
                alternative_of=names[replaced[key]] if task.alternative_of else "",
            )
            for key, task in union.items()
        ]

    def bytes_needed(self) -> int:
        # The buckets share most of their weights.
        return max(network.bytes_needed() for _, network in self.networks)

    @property
    def _open_number(self) -> int | None:
        """The number of the dimension of which a call may compute a part, if it is the only one."""
        several = [each for each in self.network.dimensions if len(each.buckets) > 1]
        reduced = any(frontend.precision is not None for _, frontend in self.networks)
        if len(several) != 1 or not several[0].padded or reduced:
            return None
        return self.network.dimensions.index(several[0])

    def _computes_parts(self, target: str) -> bool:
        """Whether calls compute their part of each bucket alone, as far as known before tuning."""
        # The delivery finds out about the other buckets, of which most will be left out.
        return self._dimension(len(self.networks) - 1, target) is not None

    def _dimension(self, place: int, target: str) -> OpenDimension | None:
        """The open dimension of the network at a place; None if a call computes all of it."""
        number = self._open_number
        if number is None or self.networks[place][0].extents[number] == 1:
            return None
        bucket, frontend = self.networks[place]
        extent = bucket.extents[number]
        another = self._other_extent(number, extent)
        extents = (*bucket.extents[:number], another, *bucket.extents[number + 1 :])
        key = bucket.extents, extents, frontend.network.layout
        if key not in self._opened:
            self._opened[key] = self._find_dimension(number, target, *key)
        dimension = self._opened[key]
        return dimension and attrs.evolve(dimension, needed=self.is_exact)

    def _find_dimension(
        self, number: int, target: str, extents: Extents, others: Extents, layout: str
    ) -> OpenDimension | None:
        """The open dimension of the network for some extents, from the network for others."""
        sizes = extents[number], others[number]
        try:
            own = self._lowered_network(extents, layout, target)
            dimension = open_dimension(own, self._lowered_network(others, layout, target), sizes)
        except (NotOpenError, NotStaticError) as reason:
            log.info("network_not_open", extent=sizes[0], reason=str(reason))
            return None
        steps = {axis.steps for axis in dimension.axes.values()}
        self.network.output_steps = tuple(sorted(steps.union(self.network.output_steps)))
        return dimension

    def _other_extent(self, number: int, extent: int) -> int:
        """The extent of the network that shows which axes of another one are open."""
        dimension = self.network.dimensions[number]
        # Kept buckets are lowered anyway. A range allows any other extent.
        choices = dimension.buckets, self._extents[number], [extent - 1] * bool(dimension.probes)
        for others in choices:
            # A network for an extent of 1 often has other operators, and so has one for an axis
            # that a stride shortens to 1.
            if others := [other for other in others if other not in {1, extent}]:
                return min(others, key=lambda other: (other < extent, abs(other - extent)))
        return 1

    def _lowered_network(self, extents: Extents, layout: str, target: str) -> LoweredNetwork:
        if (extents, layout) not in self._lowered:
            prepared = prepared_network(self.network.with_extents(extents), layout)
            self._lowered[extents, layout] = LoweredNetwork.of(prepared, target)
        return self._lowered[extents, layout]

    def deliver(self, delivery: Delivery) -> NetworkResult:
        for place, (_, frontend) in enumerate(self.networks):
            frontend.dimension = self._dimension(place, delivery.target)
        return delivered(self.network, self.by_bucket, self.named_tasks, delivery)


class _Share(Frontend.Trials):
    """Measurements for one bucket, limited to its share of the time."""

    def __init__(self, trials: Frontend.Trials, buckets: int) -> None:
        self.target = trials.target
        self.measures_hardware = trials.measures_hardware
        self.seconds = trials.seconds / buckets
        self._trials = trials

    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        return self._trials.best_seconds(task, guesses, seconds_to_beat=seconds_to_beat)


def _summaries(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The summary of each bucket, or one sentence if all are equal."""
    said = {name: str(bucket["summary"]) for name, bucket in facts.items()}
    if len(set(said.values())) == 1:
        return [f"each bucket: {next(iter(said.values()))}"]
    return [f"bucket {name}: {words}" for name, words in said.items()]


def make_frontend(options: NetworkOptions, pending: PendingImport | None = None) -> ShapeFrontend:
    """Make the frontend for a network's options: for one shape, or for several buckets."""
    if dimensions_of(options.shapes):
        return BucketedFrontend(BucketedNetwork(network_of, options))
    return NetworkFrontend(network_of(options) if pending is None else pending.network, pending)


ShapeFrontend = NetworkFrontend | BucketedFrontend
