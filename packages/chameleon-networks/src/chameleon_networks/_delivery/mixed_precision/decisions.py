"""Decides which dtypes a network's operators may have, before they become tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import ConfigError, TargetError, Task
from chameleon_system.api import usable_cores
from chameleon_tvm.api import COMPUTE, kind_of, narrow_weights_pay

from chameleon_networks._artifact.writer import check_target
from chameleon_networks._checks.check import Facts
from chameleon_networks._comparison.reduced_precision import (
    ReducedComparison,
    compared_precisions,
    held_out_samples,
    reduced_comparison,
)
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.mixed_precision.simulation import Simulation
from chameleon_networks._evaluation.verify import Run, Sample
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.operators import find_owners, specs_of
from chameleon_networks._graph.relax_utils import counted_axes
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._precision.metrics import evaluate_metric, import_metric
from chameleon_networks._precision.section import Precision
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_networks._quantize.calibration_batches import batches_of
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import Affine, ranges_from_json, ranges_to_json
from chameleon_networks._quantize.weights import Means
from chameleon_networks._source_files import SourceFiles, watched
from chameleon_networks._step_times import Stopwatch

log = structlog.get_logger()


class PrecisionDecisions:
    """The dtypes that a network's fusion groups may have, with the ranges that int8 needs.

    Attributes:
        notes: Sentences for the log, for example about dtypes that the target does not support.
    """

    def __init__(self, network: ImportedNetwork, precision: Precision) -> None:
        self.precision = precision
        self.notes: tuple[str, ...] = ()
        self._network = network
        self._types: tuple[str, ...] | None = None
        self._ranges: Mapping[str, Affine] | None = None
        self._means: Means = {}
        self._networks: dict[str, TypedNetworks] = {}
        self._samples: list[Sample] | None = None
        self._seconds: Mapping[str, float] = {}

    @property
    def types(self) -> tuple[str, ...]:
        """The reduced dtypes that operators may have; before ``decide``, those requested."""
        return self.precision.types if self._types is None else self._types

    @property
    def sources(self) -> SourceFiles:
        """The files that the network and the user's data are read from."""
        return self._network.sources

    @property
    def _called(self) -> str:
        """The name of the network in messages."""
        bucket = self._network.bucket
        return "the network" if bucket is None else f"the network in bucket {bucket.name}"

    @property
    def networks(self) -> TypedNetworks:
        """Makes the network with chosen dtypes, in the current layout."""
        layout = self._network.layout
        if layout not in self._networks:
            module, fusions = prepared_network(self._network)
            self._networks[layout] = TypedNetworks(module, fusions, self._ranges, self._means)
        return self._networks[layout]

    def decide(self, target: str) -> Facts:
        """Find the dtypes that the target supports, and calibrate the ranges that int8 needs."""
        if kind_of(target) != "llvm":
            raise TargetError(
                f"networks are computed in {' or '.join(self.types)} on CPUs alone, and the target "
                f"is {kind_of(target)!r}",
                hint="Leave 'precision' out of the pipeline, or name a CPU.",
            )
        try:
            check_target(target)
        except TargetError as error:
            raise TargetError(
                f"ranges and errors are found by running the network: {error}",
                hint="Run it on a machine of the target's kind, or leave 'precision' out.",
            ) from error
        if counted_axes(self._network.imported["main"]):
            raise ConfigError(
                f"the sizes of outputs of {self._called} depend on values, which other dtypes "
                "would change",
                hint="Leave 'precision' out of the pipeline.",
            )
        steps = Stopwatch("types")
        self._settle_types(target)
        if self._needs_ranges or self.precision.metric is not None:
            with steps.during("calibration"):
                self._calibrate(target)
        elif self.precision.calibrate is not None:
            self.held_out_batches()  # what is wrong with them is told before anything is measured
        self._seconds = steps.until_now()
        for sentence in self.notes:
            log.warning("dtype_left_out", reason=sentence)
        return self.to_json()

    @property
    def _needs_ranges(self) -> bool:
        """Whether a dtype needs ranges, as int8 does."""
        return any(COMPUTE[kind].quantized for kind in self.types)

    def _calibrate(self, target: str) -> None:
        """Find the ranges of tensors, and check that the user's metric can run the network."""
        precision = self.precision
        with self.simulation(target, max(1, len(usable_cores()))) as simulation:
            if self._needs_ranges:
                batches = batches_of(self._network, precision.calibrate)
                self._ranges, self._means = simulation.calibrated(batches)
                if precision.calibrate is not None:
                    self._samples = batches.samples
                log.info("precision_calibrated", summary=batches.summary)
            if precision.metric is not None:
                with watched(self.sources):
                    metric = import_metric(precision.metric)
                    score = evaluate_metric(
                        metric, precision.metric, partial(simulation.outputs, types={})
                    )
                log.info("metric_measured_in_float32", metric=precision.metric, score=score)
        self._networks.clear()

    def simulation(self, target: str, threads: int) -> Simulation:
        """Start a process that simulates dtypes, with the calibrated ranges if known."""
        module, fusions = prepared_network(self._network)
        simulation = Simulation(self._network, module, fusions, target, threads)
        if self._ranges is not None:
            simulation.restore(self._ranges, self._means)
        return simulation

    def held_out_batches(self) -> list[Sample]:
        """The inputs on which errors are measured, which calibration does not use."""
        if self._samples is None:
            self._samples = held_out_samples(self._network, self.precision.calibrate)
        return self._samples

    def reduced_comparison(self, run: Run) -> ReducedComparison:
        """Prepare to compare with frameworks in these dtypes and in their own choice."""
        precisions = compared_precisions(self.types)
        return reduced_comparison(self._network, precisions, self.precision.calibrate, run)

    def _settle_types(self, target: str) -> None:
        """Leave out the dtypes that no operator of the network can have."""
        able = {kind: self.networks.reducible(kind) for kind in self._tried(target)}
        usable = tuple(kind for kind, places in able.items() if places)
        if not usable:
            raise ConfigError(
                f"no operator of {self._called} can be computed in "
                f"{' or '.join(self.precision.types)} on this target"
                f"{self._reason(next(iter(able)))}",
                hint="Leave 'precision' out of the pipeline, or name another type.",
            )
        self.notes = tuple(
            f"no operator of {self._called} can be computed in {kind} on this target; it is left "
            "out"
            for kind in self.precision.types
            if kind not in usable
        )
        self._types = usable

    def _tried(self, target: str) -> tuple[str, ...]:
        """The requested dtypes, and int8 with weights of fewer bits if that pays."""
        asked = self.precision.types
        variants = [name for name, kind in COMPUTE.items() if kind.variant_of in asked]
        return (*asked, *variants) if variants and narrow_weights_pay(target) else asked

    def _reason(self, kind: str) -> str:
        """The most frequent reason why operators cannot have a dtype, after a colon."""
        reasons = Counter(find_eligible(self.networks.fusions, kind).reasons.values())
        return "".join(f": {reason}" for reason, _ in reasons.most_common(1))

    def to_json(self) -> Facts:
        """The decisions as JSON values for ``restore``, with the seconds of each step."""
        means = {name: mean.tolist() for name, mean in self._means.items()}
        return {
            "types": list(self.types),
            "ranges": None if self._ranges is None else ranges_to_json(self._ranges),
            "means": means,
            "told": list(self.notes),
            "seconds": dict(self._seconds),
        }

    def restore(self, decisions: Mapping[str, Any]) -> None:
        """Take over the decisions that ``decide`` of another object returned."""
        self._types = tuple(decisions["types"])
        self.notes = tuple(decisions["told"])
        if decisions["ranges"] is not None:
            self._ranges = ranges_from_json(decisions["ranges"])
            self._means = {
                name: np.array(mean, np.float64) for name, mean in decisions["means"].items()
            }
        self._networks.clear()

    def alternatives(self, named: Sequence[Any], target: str) -> list[Task]:
        """Make tasks for the fusion groups in reduced dtypes (alternatives)."""
        networks = self.networks
        before = with_fastest_specs(networks.fusions, target)
        distinct = dict.fromkeys(fusion.spec for fusion in before)
        own = dict(zip(distinct, (spec.name for spec in named), strict=True))
        tasks: dict[str, Task] = {}
        for kind in self._tried(target) if self._types is None else self._types:
            network, able = networks.uniform(kind), networks.reducible(kind)
            fusions = [
                typed for position in able if (typed := network.fusion(position)) is not None
            ]
            fusions = with_fastest_specs(fusions, target)
            first: dict[Any, str] = {}
            for position, fusion in zip(able, fusions, strict=True):
                first.setdefault(fusion.spec, own[before[position].spec])
            specs = specs_of(
                fusions, find_owners(fusions, self._network.imported, self._network.graph.locations)
            )
            for spec, of in zip(specs, first.values(), strict=True):
                name = f"{spec.name} {kind}"
                task = attrs.evolve(spec, name=name).task(name, target)
                tasks.setdefault(task.key, attrs.evolve(task, alternative_of=of))
        return list(tasks.values())
