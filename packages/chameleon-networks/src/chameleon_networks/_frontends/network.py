"""The frontend of a network: its operators become tasks, and their winners a network."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import cattrs
import numpy as np
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import ChameleonError, ConfigError, Delivery, Frontend, Task
from chameleon_tvm.api import FusedSpec, OperatorSpec, kind_of

from chameleon_networks._c_runtime.linking import shared_objects
from chameleon_networks._checks.check import CheckReport, Facts, tried
from chameleon_networks._compile.loop_tasks import CostlyFunction, loop_tasks
from chameleon_networks._compile.lowered_networks import functions_without_kernels
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.deliver import delivered
from chameleon_networks._delivery.delivery_steps import DeliverableNetwork
from chameleon_networks._delivery.layout_choice import OTHER, LayoutChoice, choose
from chameleon_networks._delivery.levels import target_of_level
from chameleon_networks._delivery.mixed_precision.decisions import PrecisionDecisions
from chameleon_networks._evaluation.network_cache import cache_of
from chameleon_networks._evaluation.processes import NetworkProcess, PendingImport, idle_process
from chameleon_networks._evaluation.verify import samples_of
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.operators import (
    count_transposed_elements,
    count_unfused_operators,
    find_owners,
    specs_of,
)
from chameleon_networks._graph.prepare import LayoutError
from chameleon_networks._graph.relax_utils import bytes_of_constants, shape_of
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._importers.options import AUTO, DEFAULT
from chameleon_networks._precision.section import Precision
from chameleon_networks._source_files import SourceFiles

log = structlog.get_logger()

_WEIGHTS_FACTOR, _CODE_BYTES = 2, 4_000_000
"""Bytes of a delivered network for each byte of its weights, and bytes of its code and of the run.

Some weights grow, because they are transformed for Winograd's algorithm."""


def _tried(
    network: ImportedNetwork, target: str, threads: int, layouts: Sequence[str]
) -> CheckReport:
    """The report of ``tried``, made once for a network on this machine."""
    key = hashlib.blake2b(json.dumps([target, threads, layouts]).encode(), digest_size=16)
    name, kept = f"check-{key.hexdigest()}", network.kept
    known = None if kept is None else kept.fact(name)
    if known is not None:
        return attrs.evolve(CheckReport.from_json(known[0]), day=known[1])
    report = tried(network, layouts, target, threads)
    if kept is not None and not report.crashed:
        kept.keep_fact(name, report.to_json())
    return report


def _finished(reader: NetworkProcess) -> NetworkProcess | None:
    """The process after it has imported its network; None if it failed."""
    with contextlib.suppress(ChameleonError, OSError):  # linking raises the error again
        shared_objects()
    try:
        reader.opened()
    except ChameleonError as error:
        log.debug("network_not_read_ahead", problem=str(error))  # this process says it better
        return None
    for message in reader.answer["messages"]:
        getattr(log, message.pop("log_level"))(message.pop("event"), **message)
    return reader


class NetworkFrontend(DeliverableNetwork):
    """The frontend for one input shape, with a task for each distinct fusion group."""

    def __init__(self, network: ImportedNetwork, pending: PendingImport | None = None) -> None:
        reader = None if pending is None else pending.reader
        network.kept = cache_of(network, "" if reader is None else network.programs_folder)
        self.network = network
        if pending is not None:  # while this process waits for the graph
            self.runner = pending.runner = idle_process()
        self.reader = None if reader is None else _finished(reader)
        if pending is not None and self.reader is not None:
            network.sources |= cattrs.structure(self.reader.answer["sources"], SourceFiles)
            try:
                self.reader.open(
                    network.references[0], pending.threads, samples_of(network.samples)
                )
            except (ChameleonError, OSError):  # the delivery starts another process
                self.reader = None
        self.precision = None
        asked = network.options.layout != AUTO
        self.choice = LayoutChoice(
            layout=network.layout,
            reason="as the pipeline says" if asked else "since nothing is measured",
        )
        self._checked: CheckReport | None = None
        self._loops: tuple[CostlyFunction, ...] = ()
        self._tried: Callable[[Sequence[str]], CheckReport] | None = None

    def compute_in(self, precision: Precision) -> None:
        self.precision = PrecisionDecisions(self.network, precision)

    @property
    def by_bucket(self) -> dict[str, NetworkFrontend]:
        """This frontend by an empty bucket name, for code that handles buckets."""
        return {"": self}

    @property
    def calibrate(self) -> str | None:
        """The user's function that yields calibration inputs; None for random inputs."""
        return None if self.precision is None else self.precision.precision.calibrate

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage]:
        return self.network.coverage()

    def check(self, target: str, threads: int, earlier: Mapping[str, Any] | None) -> Facts | None:
        for level in self.network.options.levels:
            target_of_level(target, level)
        if not self.network.options.check or kind_of(target) != "llvm":
            return None
        auto = self.network.options.layout == AUTO
        layouts = (DEFAULT, OTHER) if auto else (self.network.options.layout,)
        self._tried = partial(_tried, self.network, target, threads)
        report = self._tried(layouts) if earlier is None else CheckReport.from_json(earlier)
        self._checked, self._loops = report, report.loops
        self.network.cancellations = report.cancellations
        self.answered = report.day is None
        for layout, problem in report.refused.items():
            log.warning("layout_refused", layout=layout, problem=problem)
        if report.unscheduled:
            log.warning(
                "operators_in_default_loops",
                share=", ".join(f"{name} {part:.0%}" for name, part in report.unscheduled.items()),
                reason="no schedule fits them, so that tuning cannot make them faster",
            )
        return report.to_json()

    def decide(self, trials: Frontend.Trials) -> Facts | None:
        auto = self.network.options.layout == AUTO
        if not auto and self.precision is None and not self.network.cancellations:
            return None
        if auto:
            choice = self._chosen(trials)
            log.info("layout_chosen", layout=choice.layout, reason=choice.summary)
            self._take(choice)
        if self.precision is not None:
            self.precision.decide(trials.target)
        return self.decisions()

    def decisions(self) -> Facts:
        """The decisions about the network as JSON values, for ``restore``."""
        facts = {
            **self.choice.to_json(),
            "loops": [attrs.asdict(loop) for loop in self._loops],
            "cancellations": dict(self.network.cancellations),
        }
        return facts if self.precision is None else {**facts, "types": self.precision.to_json()}

    def _chosen(self, trials: Frontend.Trials) -> LayoutChoice:
        """Choose the faster of the layouts in which the network can be delivered."""
        known = None if self._checked is None else self._checked.layout
        if known == OTHER:
            return LayoutChoice(layout=OTHER, reason=f"since {DEFAULT} cannot be delivered")
        try:
            choice = choose(self._specs(trials.target), trials, self._moved)
        except LayoutError as error:
            return LayoutChoice(layout=OTHER, reason=f"since {error}")
        if known is not None and choice.layout == OTHER and self._tried is not None:
            # So far, only the other layout was tried.
            try:
                self._loops = self._tried((OTHER,)).loops
            except ChameleonError as error:
                log.warning("layout_refused", layout=OTHER, problem=str(error))
                return attrs.evolve(
                    choice, layout=DEFAULT, reason=f"since {OTHER} cannot be delivered"
                )
        return choice

    def _moved(self, layout: str) -> int:
        """How many elements permutations move in a layout; huge if the layout is impossible."""
        try:
            return count_transposed_elements(*prepared_network(self.network, layout))
        except LayoutError:
            return sys.maxsize

    def restore(self, decisions: Mapping[str, Any]) -> None:
        self._take(LayoutChoice.from_json(decisions))
        self._loops = cattrs.structure(decisions.get("loops", ()), tuple[CostlyFunction, ...])
        self.network.cancellations = cattrs.structure(
            decisions.get("cancellations", {}), dict[str, tuple[int, int]]
        )
        if self.precision is not None and "types" in decisions:
            self.precision.restore(decisions["types"])

    def _take(self, choice: LayoutChoice) -> None:
        """Use the chosen layout for the network."""
        self.choice = choice
        self.network.layout = choice.layout

    def tasks(self, target: str) -> list[Task]:
        specs = self._specs(target)
        if not specs:
            log.warning(
                "nothing_to_tune",
                reason="the network has no convolution and no matrix product in float32; it is "
                "compiled with default schedules",
            )
        module, fusions = prepared_network(self.network)
        log.info("operators_left_to_the_compiler", **count_unfused_operators(module, fusions))
        grown = {
            spec.name: spec.cancellation
            for spec in specs
            if isinstance(spec, FusedSpec) and spec.cancellation > 1
        }
        if grown:
            log.info("large_products_cancel", errors_grow=grown)
        fusions = with_fastest_specs(fusions, target)
        names = dict(zip(dict.fromkeys(fusion.spec for fusion in fusions), specs, strict=True))
        for fusion in fusions:
            if any(np.isnan(constant).any() for constant in fusion.constants.arrays):
                raise ConfigError(
                    f"there is NaN among the weights of {names[fusion.spec].name}, "
                    f"a {fusion.spec.kind} that gives {list(shape_of(fusion.last))}",
                    hint="Chameleon could not check its outputs. Fix the weights.",
                )
        return self.named_tasks(target)

    def named_tasks(self, target: str) -> list[Task]:
        """The same tasks as ``tasks``, without checking the weights."""
        specs = self._specs(target)
        # Weights are read once for each inference, so the caches hold those of later operators.
        weights = bytes_of_constants(self.network.imported)
        tasks = [
            attrs.evolve(
                spec.task(spec.name, target),
                cold_bytes=weights if isinstance(spec, FusedSpec) else 0,
            )
            for spec in specs
        ]
        if self._loops:
            functions = functions_without_kernels(*prepared_network(self.network), target)
            tasks += loop_tasks(self._loops, functions, target)
        if self.precision is not None:
            known = {task.key for task in tasks}
            others = self.precision.alternatives(specs, target)
            cold = {task.name for task in tasks if task.cold_bytes}
            tasks += [
                attrs.evolve(task, cold_bytes=weights if task.alternative_of in cold else 0)
                for task in others
                if task.key not in known
            ]
        return tasks

    def _specs(self, target: str) -> list[OperatorSpec]:
        """The network's distinct operators, with names and weights."""
        fusions = with_fastest_specs(prepared_network(self.network)[1], target)
        return specs_of(
            fusions, find_owners(fusions, self.network.imported, self.network.graph.locations)
        )

    def bytes_needed(self) -> int:
        module, _ = prepared_network(self.network)
        return _WEIGHTS_FACTOR * bytes_of_constants(module) + _CODE_BYTES

    def deliver(self, delivery: Delivery) -> NetworkResult:
        return delivered(self, delivery)
