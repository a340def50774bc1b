"""The steps of one delivery: compile the network, verify it, find a wrong kernel, time it."""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import (
    Arrays,
    ChameleonError,
    Delivery,
    Frontend,
    Task,
)
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import STORAGE, one_line

from chameleon_networks._artifact.writer import (
    check_target,
    manifest_of,
    write_artifact,
)
from chameleon_networks._c_runtime.linking import compiler_command
from chameleon_networks._checks.error_search import SECONDS, ErrorSearch
from chameleon_networks._checks.near_ties import second_verdict
from chameleon_networks._comparison.baselines import Baselines
from chameleon_networks._comparison.reduced_precision import ReducedComparison
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.open_dimension import OpenDimension
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.kernel_choice import choices, fastest, kernel_seconds_in_networks
from chameleon_networks._delivery.layout_choice import LayoutChoice
from chameleon_networks._delivery.mixed_precision.decisions import PrecisionDecisions
from chameleon_networks._evaluation.network_cache import NetworkCache, ReferenceOutputs
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
    idle_process,
)
from chameleon_networks._evaluation.special_inputs import special_inputs
from chameleon_networks._evaluation.state import CALLS, in_sequence
from chameleon_networks._evaluation.verify import (
    DRAWS,
    ROUNDINGS,
    Expected,
    OutputCheck,
    Run,
    Sample,
    SpecialCheck,
    SpecialInputs,
    check_finite,
    compare,
    compare_all,
    find_failing,
    jittered,
    samples_of,
)
from chameleon_networks._frameworks import AS_IT_COMES
from chameleon_networks._frameworks.inference import TORCH
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._precision.typed_networks import TypedNetwork
from chameleon_networks._step_times import Stopwatch

log = structlog.get_logger()

COMPILING = "compiling and verifying"
"""The step of a delivery that compiles the network in the dtypes of its source."""

MEASURING_SECONDS = 0.5
"""Time in which a library beside that of the tuned network is measured."""

FIRST, ANOTHER, PREDICTED = "first guess", "next guess", "configuration predicted to be best"
"""Phrases that say what an operator without a measured time is delivered with."""

_NOT_A_KERNEL = (
    "it fails without any tuned kernel too, as if the model had other weights each time it is built"
)


class DeliverableNetwork(Frontend):
    """A network with its chosen layout and the dtypes that it may have, ready for delivery.

    Attributes:
        choice: The layout of the whole graph, with the reason for it.
        precision: The dtypes that the operators may have. None if they keep those of the source.
        answered: Whether this run's check kept the reference's outputs.
        reader: The process that imported the network, or None.
        runner: A process that will run the compiled network, or None if none was started yet.
        dimension: The size of the inputs that calls may make smaller, or None.
    """

    network: ImportedNetwork
    choice: LayoutChoice
    precision: PrecisionDecisions | None
    answered: bool = False
    reader: NetworkProcess | None = None
    runner: NetworkProcess | None = None
    dimension: OpenDimension | None = None

    @abstractmethod
    def named_tasks(self, target: str) -> list[Task]:
        """The network's tasks for a resolved target, without checking the weights."""

    def reduced_comparison(self, run: Run) -> ReducedComparison | None:
        """The comparison in reduced precision; None if the source's dtypes stay."""
        return None if self.precision is None else self.precision.reduced_comparison(run)


@attrs.frozen(kw_only=True, eq=False)
class GraphWithKernels:
    """A network's graph, and the kernels that it is compiled with.

    Attributes:
        module: The prepared module.
        fusions: Its fusion groups.
        kernels: Their kernels.
        dimension: The size of the inputs that calls may make smaller, or None.
    """

    module: Any
    fusions: Sequence[FusionGroup]
    kernels: Kernels
    dimension: OpenDimension | None = None


def find_wrong_kernels(steps: DeliverySteps, suspects: Sequence[str]) -> list[str]:
    """The tasks whose kernels break the network, by compiling it without suspects."""

    def fails(keys: frozenset[str]) -> bool:
        others = frozenset(suspects) - keys
        _, verdict = steps.tried(steps.kernels.without(others), "suspects")
        return verdict.problem is not None

    return find_failing(suspects, fails)


def _looked_up(
    samples: Sequence[Arrays], special: Sequence[SpecialInputs], known: ReferenceOutputs
) -> Run:
    """Known outputs as a function of the inputs that they were computed for."""
    inputs = [*samples, *(one.inputs for one in special)]
    answers = [*known.outputs, *known.special]
    outputs = {id(given): got for given, got in zip(inputs, answers, strict=True)}

    def run(given: Arrays) -> Arrays:
        return outputs[id(given)] or []

    return run


class DeliverySteps:
    """The steps with which a network is delivered: compile, compare with the reference, time.

    Attributes:
        settled: The network.
        kernels: The kernels that the network is compiled with.
        disagreement: A sentence that says that the first reference is wrong, or None.
        replaced: The reason why a guess was not used, by ``Task.key``.
        baselines: Other ways to run the network, among them its reference.
        recorded: A function that returns the fastest configurations of other runs
            (``Delivery.recorded``).
        seconds: The wall-clock seconds of each step.
        compiled: The graph and the kernels of each compiled network that gets further libraries, by
            its folder.
        problem_of: A function that says what is wrong with the outputs of a process that runs the
            network in the dtypes that were chosen, or None. It also takes the result of ``search``.
    """

    def __init__(
        self, settled: DeliverableNetwork, delivery: Delivery, stack: contextlib.ExitStack
    ) -> None:
        # A target or compiler that cannot be used raises its error before any work starts.
        check_target(delivery.target)
        compiler_command()
        self.seconds = Stopwatch(COMPILING)
        self.settled = settled
        self._delivery = delivery
        self.target, self.threads = delivery.target, delivery.threads
        self.recorded = delivery.recorded
        self._stack = stack
        self._module, self._fusions = prepared_network(settled.network)
        winners = {winner.task.key: winner for winner in delivery.winners}
        own = {key: winner for key, winner in winners.items() if not winner.task.alternative_of}
        self.kernels = Kernels(own, delivery.space, delivery.target)
        self._alternatives = {
            key: winner for key, winner in winners.items() if key not in own and winner.measured
        }
        self._verified: dict[Path, NetworkProcess] = {}
        self.compiled: dict[Path, GraphWithKernels] = {}
        self.problem_of: Callable[[NetworkProcess, ErrorSearch], str | None] = self._problem_of
        self._scratch = Path(stack.enter_context(temporary_folder()))
        self._samples = samples_of(settled.network.samples)
        self._special = special_inputs(settled.network)
        self.replaced: dict[str, str] = {}
        self.disagreement: str | None = None
        self._opinions: list[str] = []
        kept = settled.network.kept
        self._kept = kept if isinstance(kept, NetworkCache) else None
        self._known: ReferenceOutputs | None = None
        if self._kept is not None:
            self._known = self._kept.answers(self._samples, self._special)
        self.baselines = Baselines(
            settled.network,
            delivery,
            self._scratch,
            stack,
            warm_up=self._samples if self._known is None else None,
            reader=settled.reader,
        )
        self._waiting = [] if settled.runner is None else [stack.enter_context(settled.runner)]

    def _waiting_process(self) -> NetworkProcess:
        return self._stack.enter_context(idle_process())

    @cached_property
    def _tasks(self) -> list[Task]:
        return self.settled.named_tasks(self.target)

    @cached_property
    def answers(self) -> ReferenceOutputs:
        """The reference's outputs for the samples, from the cache or its process."""
        if self._known is not None:
            return self._known
        with self.seconds.during("reference"):
            reference = self.baselines.reference
            outputs = reference.first_outputs or [
                reference.outputs(inputs) for inputs in self._samples
            ]
            check_finite(reference.name, outputs)
            special = [self._special_outputs(one) for one in self._special]
        return ReferenceOutputs(reference=reference.name, outputs=outputs, special=special)

    def _special_outputs(self, special: SpecialInputs) -> Arrays | None:
        """The reference's outputs for special inputs; None if it refuses them."""
        try:
            return self.baselines.reference.outputs(special.inputs)
        except ChameleonError as error:
            log.debug("inputs_refused", inputs=special.label, problem=str(error))
            self.baselines.restart_reference()
            return None

    def _rounded_outputs(self, inputs: Arrays) -> list[Arrays]:
        """The reference's outputs in other roundings, to see how much they matter."""
        answers = [] if (exact := self.baselines.exact([inputs])) is None else exact
        with contextlib.suppress(ChameleonError):
            reference = self.baselines.reference
            answers += [reference.outputs(jittered(inputs, draw)) for draw in range(DRAWS)]
        return answers

    def keep(self) -> None:
        """Keep the imported network and the reference's outputs in the cache for later runs."""
        network = self.settled.network
        if self._kept is None:
            return
        network.keep()
        # Outputs of the untuned network of TVM depend on more than the network, so they are not
        # stored.
        if not (self._known or self.baselines.unverified or self.disagreement):
            self._kept.store_outputs(self.answers, self._samples, self._special)

    @cached_property
    def expected(self) -> Expected:
        """The outputs that a network must have, with a way to compute them in float64."""
        return self._expected(self.answers, self._rounded_outputs, self._jittered_answers)

    def _expected(
        self,
        known: ReferenceOutputs,
        rounded_outputs: Callable[[Arrays], Sequence[Arrays]] = lambda _: (),
        *others: Callable[[], Sequence[Arrays] | None],
    ) -> Expected:
        """The outputs that a network must have if a reference is right, in some roundings."""
        answers = known.outputs
        special = [
            SpecialCheck(
                one,
                outputs,
                rounded_outputs,
                lenient=one.may_spread or (not one.is_finite and bool(self._fusions)),
            )
            for one, outputs in zip(self._special, known.special, strict=True)
            if outputs is not None
        ]
        exact = partial(self.baselines.exact, self._samples)
        rounded = self.settled.network.has_quantized_activations
        return Expected(
            self._samples,
            answers,
            exact,
            rounded=rounded,
            special=special,
            others=(*others, exact) if others else None,
            exact_outputs=self.settled.network.exact_outputs,
        )

    def _jittered_answers(self) -> list[Arrays] | None:
        """The reference's outputs for samples that differ by a few roundings."""
        with contextlib.suppress(ChameleonError):
            reference = self.baselines.reference
            return [reference.outputs(jittered(inputs)) for inputs in self._samples]
        return None

    def with_alternatives(self, fusions: Sequence[FusionGroup]) -> Kernels:
        """The kernels for fusion groups, some of which have reduced dtypes."""
        winners = {**self._alternatives, **self.kernels.winners}
        return attrs.evolve(self.kernels, winners=winners).adapted(fusions)

    def unmeasured(self) -> tuple[NetworkResult.Unmeasured, ...]:
        """The operators whose kernels were never timed, each with the reason."""
        winners = {winner.task.key: winner for winner in self._delivery.winners}
        operators = []
        for task in self._tasks:
            if task.alternative_of:
                continue  # an alternative that was not measured is not used
            chosen, first = self.kernels.winners.get(task.key), winners.get(task.key)
            if chosen is not None and chosen.measured:
                continue
            best = PREDICTED if first is not None and first.predicted else FIRST
            kernel = NetworkResult.DEFAULT_SCHEDULE
            if chosen is not None and first is not None:
                kernel = best if chosen.config == first.config else ANOTHER
            because = "it was not reached" if first is not None else "no measurement succeeded"
            if not self._delivery.measures:
                because = "not measured, as the budget says"
            if first is not None and kernel != best:
                because += f", and its {best} gives no program"
            because = self.replaced.get(task.key, because)
            operators.append(
                NetworkResult.Unmeasured(name=task.name, kernel=kernel, because=because)
            )
        return tuple(operators)

    def compile(self, kernels: Kernels, name: str, network: TypedNetwork | None = None) -> Path:
        """Compile the network with the kernels of some tasks into a temporary folder."""
        module = self._module if network is None else network.module
        fusions = self._fusions if network is None else network.fusions
        log.info("compiling_network", kernels=len(kernels.winners), fusions=len(fusions))
        folder = self._scratch / name
        earlier = self._verified.pop(folder, None)
        if earlier is not None:
            earlier.close()
        with warnings_once():  # kernels are compiled until they are written
            dimension = self.settled.dimension if network is None else None
            built = compile_network(
                module, fusions, kernels, self.target, dimension=dimension, wait=False
            )
            manifest = {
                **manifest_of(module, fusions, kernels, self.target, self.threads),
                "layout": self.settled.choice.to_json(),
                **built.facts,
                "unmeasured": [attrs.asdict(task) for task in self.unmeasured()],
            }
            write_artifact(folder, built.executable, manifest)
        if built.permissions or self.settled.network.options.levels:
            graph = GraphWithKernels(
                module=module, fusions=fusions, kernels=kernels, dimension=dimension
            )
            self.compiled[folder] = graph
        return folder

    def _problem_of(self, process: NetworkProcess, search: ErrorSearch) -> str | None:
        return self._verdict(process, search).problem

    def _verdict(self, process: NetworkProcess, search: ErrorSearch) -> OutputCheck:
        """Compare with the reference, whose near ties may be decided otherwise."""
        verdict = self.expected.verdict(process.outputs)
        if verdict.problem is not None:
            verdict = second_verdict(search, self.expected, process.outputs, verdict)
        return verdict

    def choose_kernels_in_network(self) -> Path | None:
        """Keep the kernels that are fastest in the network, whose folder is returned if built."""
        variants: list[Kernels] = []
        networks: list[NetworkProcess] = []
        with contextlib.ExitStack() as stack:
            for number, kernels in enumerate(choices(self.kernels)):
                try:
                    folder = self.compile(kernels, f"trial-{number}")
                    networks.append(stack.enter_context(self.running(folder)))
                except ChameleonError as error:
                    log.warning("network_not_tried", problem=str(error), hint=error.hint)
                    if not number:
                        return None
                    continue
                variants.append(kernels)
            if len(variants) == 1:
                return networks[0].folder
            _ = self.expected  # a process that still starts would disturb the timing
            try:
                seconds = kernel_seconds_in_networks(
                    networks, self._samples[0], threads=self.threads
                )
            except ChameleonError as error:
                log.warning("network_not_tried", problem=str(error), hint=error.hint)
                return networks[0].folder
        better = fastest(variants, seconds)
        self.kernels = self.kernels.replaced(better)
        return None if better else networks[0].folder

    def tried(self, kernels: Kernels, name: str) -> tuple[Path | None, OutputCheck]:
        """Compile and compare; no folder if a kernel without measurement fails."""
        # It imports modules while this process compiles.
        self._waiting = self._waiting or [self._waiting_process()]
        try:
            folder = self.compile(kernels, name)
        # TVM raises errors of many classes; kernels that were never measured may cause any.
        except Exception as error:
            if all(winner.checked for winner in kernels.winners.values()):
                raise
            problem = f"it cannot be compiled: {one_line(error)}"
            return None, OutputCheck(max_relative_error=None, problem=problem)
        return folder, self.verdict(folder, kernels)

    def verdict(self, folder: Path, kernels: Kernels) -> OutputCheck:
        """Compare with the reference, in another process that a wrong kernel may crash."""
        try:
            process = self._waiting.pop() if self._waiting else None
            if process is None or not process.alive:  # it may lack memory during compilation
                process = self._waiting_process()
            process.open_delivered(folder, self.threads)
        except ChameleonError as error:
            return OutputCheck(max_relative_error=None, problem=str(error))
        verdict = self._verdict(process, self.search(kernels))
        if verdict.problem is None and self.settled.network.state:
            verdict = self._verdict_in_sequence(process, verdict)
        if verdict.problem is None:
            self._verified[folder] = process
        else:
            process.close()
        return verdict

    def _verdict_in_sequence(self, process: NetworkProcess, single: OutputCheck) -> OutputCheck:
        """Compare some calls in sequence, each of which takes the state of the call before."""
        network = self.settled.network
        batches = list(itertools.islice(itertools.cycle(self._samples), CALLS))
        initial = (network.example_inputs or [])[-len(network.state) :]
        try:
            wanted = in_sequence(self.baselines.reference.outputs, batches, initial)
            given = in_sequence(process.outputs, batches, initial)
        except ChameleonError as error:
            return OutputCheck(max_relative_error=None, problem=str(error))
        check = compare_all(given, wanted, tolerance=self.expected.tolerance)
        if check.problem is not None:
            problem = f"in one of {CALLS} calls with one state, {check.problem}"
            return attrs.evolve(check, problem=problem)
        worst = max(check.max_relative_error or 0.0, single.max_relative_error or 0.0)
        return attrs.evolve(check, max_relative_error=worst)

    def arbitrated(self, folder: Path, verdict: OutputCheck) -> OutputCheck:
        """Let a third implementation decide whether a network or its reference is wrong."""
        first = self.answers
        if self.baselines.unverified is not None:
            return verdict
        names = [name for name in self.settled.network.arbiters if name != first.reference]
        for name in names:
            try:
                expected, answers = self._opinion(name, first)
                with delivered_process("network", folder, threads=self.threads) as ours:
                    own = expected.verdict(ours.outputs)
            except ChameleonError as error:
                log.info("no_opinion", by=name, problem=str(error))
                continue
            if own.problem is None:
                self.disagreement = (
                    f"{first.reference} is wrong: {name} agrees with the network, and compared "
                    f"with {first.reference}, {verdict.problem}{self._first_wrong_operator()}"
                )
                self.answers, self.expected = answers, expected
                return own
            theirs = expected.verdict(_looked_up(self._samples, self._special, first))
            sides = "agrees" if theirs.problem is None else "does not agree"
            self._opinions.append(f"{name} {sides} with {first.reference}")
            if theirs.problem is None:
                break
        return verdict

    def _opinion(self, name: str, first: ReferenceOutputs) -> tuple[Expected, ReferenceOutputs]:
        """The outputs of another implementation for inputs that the first reference answers."""
        special: list[Arrays | None] = []
        with framework_process(self.settled.network, name, threads=self.threads) as process:
            outputs = [process.outputs(inputs) for inputs in self._samples]
            for one, known in zip(self._special, first.special, strict=True):
                special.append(None if known is None else process.outputs(one.inputs))
        answers = ReferenceOutputs(reference=name, outputs=outputs, special=special)
        return self._expected(answers), answers

    def check_in_source_precision(self, folder: Path, kind: str) -> NetworkResult.OwnPrecision:
        """Compare a network whose source is in half precision with torch in that precision."""
        framework = self.baselines.opened(TORCH)
        if framework is None:
            return NetworkResult.OwnPrecision(dtype=kind)
        tolerance = ROUNDINGS * STORAGE[kind].rounding
        with framework, self.running(folder) as process:
            expected = [framework.outputs(inputs) for inputs in self._samples]
            verdict = compare(process.outputs, self._samples, expected, tolerance=tolerance)
        problem = verdict.problem
        return NetworkResult.OwnPrecision(
            dtype=kind,
            reference=framework.name,
            tolerance=tolerance,
            max_relative_error=verdict.max_relative_error,
            problem=problem
            and f"compared with torch in {kind}, {problem}; it agrees with the "
            "same network in float32, which a model returned in float32 is compared with alone",
        )

    def explain_failure(self, verdict: OutputCheck) -> str:
        """A sentence that says why the network fails, and which tasks' kernels cause it."""
        log.warning("network_fails", problem=verdict.problem)
        cause = self._first_wrong_operator()
        keys = find_wrong_kernels(self, list(self.kernels.winners))
        names = ", ".join(self.kernels.winners[key].task.name for key in keys)
        blame = f"the kernel of {names} is to blame" if keys else _NOT_A_KERNEL
        compared = f"compared with {self.answers.reference}, {verdict.problem}{cause}"
        return "; ".join([f"the network is not delivered: {compared}", *self._opinions, blame])

    def _first_wrong_operator(self) -> str:
        """A clause that names the operator at which the network and its reference part, or none."""
        return self.search(self.kernels).clause(self.expected)

    def search(self, kernels: Kernels, **facts: Any) -> ErrorSearch:
        """Compares parts of the network, compiled with some kernels, with its framework."""
        facts = {"target": self.target, "threads": self.threads, "seconds": SECONDS, **facts}
        layout = self.settled.choice.layout
        return ErrorSearch(self.settled.network, layout, kernels, **facts)

    def running(self, folder: Path) -> NetworkProcess:
        """The process that runs the network of a folder, started if needed."""
        verified = self._verified.pop(folder, None)
        return verified or delivered_process("network", folder, threads=self.threads)

    def timed(self, result: NetworkResult, ours: NetworkProcess) -> NetworkResult:
        """Time the network and its baselines in turns, and add the times to a result."""
        reduced = None
        self.baselines.begin()
        try:
            if self.baselines.has_time():
                reduced = self.settled.reduced_comparison(self._reference_outputs)
        except ChameleonError as error:
            log.warning("reduced_precision_not_compared", problem=str(error), hint=error.hint)
            self.baselines.left_out["what is in reduced precision"] = one_line(error)
        by_default = ReducedComparison(
            precisions=(AS_IT_COMES,),
            by_default=True,
            calibration=(),
            samples=[Sample(inputs=inputs) for inputs in self._samples],
            expected=self.answers.outputs,
        )
        return self.baselines.timed(result, ours, self._samples[0], reduced or by_default)

    def _reference_outputs(self, inputs: Arrays) -> Arrays:
        """The reference's outputs; its process starts if it has not yet."""
        return self.baselines.reference.outputs(inputs)

    def inference_seconds(self, process: NetworkProcess) -> list[float]:
        """Measure the seconds of some inferences of a delivered network."""
        return process.seconds(self._samples[0], about=MEASURING_SECONDS)

    def kernel_seconds(self, process: NetworkProcess) -> tuple[NetworkResult.Kernel, ...]:
        """Measure the seconds of each kernel of a delivered network; empty if that fails."""
        try:
            return tuple(process.profile(self._samples[0]))
        except ChameleonError as error:
            log.warning("network_not_profiled", problem=str(error), hint=error.hint)
            return ()
