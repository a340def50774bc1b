"""What all frontends of networks are: a network's operators as tasks, and back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.stages import Arrays, Delivery, Frontend, Trials
from chameleon_core.task import Task

from chameleon_networks.delivery.layout_choice import DEFAULT, OTHER, LayoutChoice, choose
from chameleon_networks.importers.options import AUTO, NetworkOptions
from chameleon_networks.importers.runnable import Runnable
from chameleon_networks.shapes import buckets_of
from chameleon_networks.source_location import SourceLocation

if TYPE_CHECKING:
    from pathlib import Path

    from chameleon_core.pipeline import Precision
    from chameleon_tvm.operators.specs import OperatorSpec

    from chameleon_networks.delivery.bucket_inputs import BucketInputs
    from chameleon_networks.delivery.delivery_steps import DeliverySteps
    from chameleon_networks.delivery.reduced_rivals import ReducedRequest
    from chameleon_networks.delivery.typed.decisions import PrecisionDecisions
    from chameleon_networks.graph.fused_operators import FusedOperator
    from chameleon_networks.running.verify import Run

log = structlog.get_logger()


class NetworkFrontend(Runnable, Frontend):
    """One task per distinct fused convolution and matrix product of a network of some options.

    Attributes:
        choice: the layout of the whole graph, and why it is that one.
        bucket: which inputs are its own as one of several buckets of shapes; None for all.
    """

    def __init__(self, options: NetworkOptions) -> None:
        self.options = options
        self.bucket: BucketInputs | None = None
        asked = options.layout != AUTO
        self.choice = LayoutChoice(
            layout=options.layout if asked else DEFAULT,
            reason="as the pipeline says" if asked else "where nothing is measured",
        )
        self._prepared: dict[str, tuple[Any, list[FusedOperator]]] = {}
        self._checked: dict[str, Any] | None = None
        self._loops: list[dict[str, Any]] = []
        self._tried: Callable[[Sequence[str]], dict[str, Any]] | None = None
        self._precision: PrecisionDecisions | None = None

    def compute_in(self, precision: Precision) -> None:
        from chameleon_networks.delivery.typed.decisions import PrecisionDecisions  # noqa: PLC0415 - needs TVM

        self._precision = PrecisionDecisions(self, precision)

    @abstractmethod
    def relax_module(self) -> tuple[Any, dict[str, SourceLocation]]:
        """The network as a Relax ``IRModule`` with constant weights.

        Returns:
            The module, and for the name of each variable in it the place that it is from.

        Raises:
            ConfigError: it cannot be read; says where.
        """

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs by name, where the pipeline asks for any.

        Raises:
            ValueError: some are in buckets, of which a ``BucketedFrontend`` makes networks.
        """
        [bucket] = buckets_of(self.options.shapes)
        return dict(bucket.shapes)

    @property
    def half(self) -> str | None:
        """Its own precision where that is half: ``float16`` or ``bfloat16``, or None.

        Such a network is compiled in float32 and has inputs and outputs in float32.
        """
        return None

    @cached_property
    def quantized(self) -> bool:
        """Whether it comes quantized."""
        from chameleon_networks.graph.quantized_steps import is_quantized  # noqa: PLC0415 - needs TVM

        return is_quantized(self.imported)

    @cached_property
    def rounded(self) -> bool:
        """Whether it rounds what it computes to quantized numbers: its answers are some of few."""
        from chameleon_networks.graph.quantized_steps import is_rounded  # noqa: PLC0415 - needs TVM

        return is_rounded(self.imported)

    @abstractmethod
    def input_names(self) -> list[str]:
        """Names of the inputs as their framework has them, in their order."""

    @abstractmethod
    def samples(self, rng: np.random.Generator) -> Arrays:
        """Random inputs, one array each."""

    @property
    def types(self) -> tuple[str, ...]:
        """Types beside float32 that its operators may have, as the pipeline says."""
        return () if self._precision is None else self._precision.types

    @property
    def calibrate(self) -> str | None:
        """Where inputs to calibrate with are from, as the pipeline says; None for random ones."""
        return None if self._precision is None else self._precision.precision.calibrate

    def reduced_request(self, run: Run) -> ReducedRequest | None:
        """How it is compared with others in its types; None where the pipeline names none.

        Args:
            run: the reference in float32.

        Raises:
            ChameleonError: inputs to calibrate with cannot be had, or the reference fails.
        """
        if not self.types:
            return None
        from chameleon_networks.delivery.reduced_rivals import precisions_beside  # noqa: PLC0415
        from chameleon_networks.delivery.typed.comparing import reduced_request  # noqa: PLC0415

        return reduced_request(self, precisions_beside(self.types), self.calibrate, run)

    @cached_property
    def _read(self) -> tuple[Any, dict[str, SourceLocation]]:
        from chameleon_networks.graph.warnings_once import warnings_once  # noqa: PLC0415

        with warnings_once():
            return self.relax_module()

    def read_ahead(self) -> None:
        """Read what a compiler's crash cannot follow from, while another process waits for it."""

    @property
    def imported(self) -> Any:
        """The network as its framework writes it; read once."""
        return self._read[0]

    @property
    def locations(self) -> dict[str, SourceLocation]:
        """Where each variable of ``imported`` comes from, by its name."""
        return self._read[1]

    @property
    def prepared(self) -> tuple[Any, list[FusedOperator]]:
        """The network as it is tuned and compiled, and the chains in it; made once a layout.

        Raises:
            ConfigError: it cannot be read or converted.
        """
        return self.prepared_in(self.choice.layout)

    def prepared_in(self, layout: str) -> tuple[Any, list[FusedOperator]]:
        """As ``prepared``, in a layout that may not be the chosen one."""
        from chameleon_networks.graph.chains import chains_of  # noqa: PLC0415 - needs TVM
        from chameleon_networks.graph.prepare import prepared  # noqa: PLC0415
        from chameleon_networks.graph.warnings_once import warnings_once  # noqa: PLC0415

        if layout not in self._prepared:
            imported = self.imported
            with warnings_once():
                module = prepared(imported, layout)
                self._prepared[layout] = module, chains_of(module)
        return self._prepared[layout]

    def check(
        self, target: str, threads: int, earlier: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        from chameleon_tvm.device.targets import tvm_target  # noqa: PLC0415

        from chameleon_networks.delivery.checking import tried  # noqa: PLC0415 - needs TVM

        if not self.options.check or tvm_target(target).kind.name != "llvm":
            return None
        auto = self.options.layout == AUTO
        layouts = (DEFAULT, OTHER) if auto else (self.options.layout,)
        self._tried = partial(tried, self, target=target, threads=threads)
        self._checked = dict(self._tried(layouts) if earlier is None else earlier)
        self._loops = self._checked.get("loops", [])
        for layout, problem in self._checked["refused"].items():
            log.warning("layout_refused", layout=layout, problem=problem)
        return self._checked

    def decide(self, trials: Trials) -> dict[str, Any] | None:
        auto = self.options.layout == AUTO
        if not auto and self._precision is None:
            return None
        if auto:
            choice = self._chosen(trials)
            log.info("layout_chosen", layout=choice.layout, why=choice.summary)
            self.choice = choice
        if self._precision is not None:
            self._precision.decide(trials.target)
        return self.decisions()

    def decisions(self) -> dict[str, Any]:
        """What ``restore`` of another object of the same options needs."""
        found = {**self.choice.to_json(), "loops": self._loops}
        return found if self._precision is None else {**found, "types": self._precision.to_json()}

    def _chosen(self, trials: Trials) -> LayoutChoice:
        """The faster layout of those that the network can be delivered in."""
        from chameleon_networks.graph.prepare import LayoutError  # noqa: PLC0415 - needs TVM

        known = (self._checked or {}).get("layout")
        if known == OTHER:
            return LayoutChoice(layout=OTHER, reason=f"since {DEFAULT} cannot be delivered")
        try:
            choice = choose(self._specs(trials.target), trials)
        except LayoutError as error:
            return LayoutChoice(layout=OTHER, reason=f"since {error}")
        if known is not None and choice.layout == OTHER and self._tried is not None:
            # Only the other one was tried so far.
            try:
                self._loops = self._tried((OTHER,))["loops"]
            except ChameleonError as error:
                log.warning("layout_refused", layout=OTHER, problem=str(error))
                return attrs.evolve(
                    choice, layout=DEFAULT, reason=f"since {OTHER} cannot be delivered"
                )
        return choice

    def restore(self, decisions: Mapping[str, Any]) -> None:
        self.choice = LayoutChoice.from_json(decisions)
        self._loops = decisions.get("loops", [])
        if self._precision is not None and "types" in decisions:
            self._precision.restore(decisions["types"])

    def tasks(self, target: str) -> list[Task]:
        from chameleon_networks.graph.moves import shape_of  # noqa: PLC0415 - needs TVM
        from chameleon_networks.graph.narrow_weights import fastest  # noqa: PLC0415
        from chameleon_networks.graph.operators import left_over  # noqa: PLC0415

        specs = self._specs(target)
        if not specs:
            log.warning(
                "nothing_to_tune",
                why="the network has no convolution and no matrix product in float32; it is "
                "compiled with default schedules",
            )
        module, chains = self.prepared
        log.info("operators_left_to_the_compiler", **left_over(module, chains))
        chains = fastest(chains, target)
        names = dict(zip(dict.fromkeys(chain.spec for chain in chains), specs, strict=True))
        for chain in chains:
            if any(np.isnan(constant).any() for constant in chain.constants):
                raise ConfigError(
                    f"there is NaN among the weights of {names[chain.spec].name}, "
                    f"a {chain.spec.kind} that gives {list(shape_of(chain.last))}",
                    hint="What it computes could not be checked; mend the weights.",
                )
        return self.named_tasks(target)

    def named_tasks(self, target: str) -> list[Task]:
        """The same tasks without looking at the weights."""
        from chameleon_networks.compile.compile import fused_functions  # noqa: PLC0415 - needs TVM
        from chameleon_networks.compile.loop_tasks import loop_tasks  # noqa: PLC0415

        specs = self._specs(target)
        found = [spec.task(spec.name, target) for spec in specs]
        if self._loops:
            functions = fused_functions(*self.prepared, target)
            found += loop_tasks(self._loops, functions, target)
        if self._precision is not None:
            known = {task.key for task in found}
            others = self._precision.alternatives(specs, target)
            found += [task for task in others if task.key not in known]
        return found

    def _specs(self, target: str) -> list[OperatorSpec]:
        """The network's distinct operators, named and weighted."""
        from chameleon_networks.graph.narrow_weights import fastest  # noqa: PLC0415 - needs TVM
        from chameleon_networks.graph.operators import specs_of  # noqa: PLC0415
        from chameleon_networks.graph.owners import owners  # noqa: PLC0415

        chains = fastest(self.prepared[1], target)
        return specs_of(chains, owners(chains, self.imported, self.locations))

    def deliver(self, delivery: Delivery) -> dict[str, Any] | None:
        from chameleon_networks.delivery.deliver import delivered  # noqa: PLC0415 - needs TVM

        return delivered(self, delivery)

    def in_types(
        self, steps: DeliverySteps, staged: Path, result: dict[str, Any]
    ) -> tuple[Path, dict[str, Any]]:
        """Take types for the network's operators where the pipeline has some and they are faster.

        Args:
            steps: the network's delivery.
            staged: the folder that it is in, verified in the types that it has anyway.
            result: what there is to say about it.

        Returns:
            The folder of what is to be delivered, and what there is to say about that.
        """
        if self._precision is None:
            return staged, result
        from chameleon_networks.delivery.typed.delivery import in_types  # noqa: PLC0415 - needs TVM

        return in_types(steps, self._precision, staged, result)
