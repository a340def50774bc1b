"""Checks whether a network can be delivered: ``python -m chameleon_networks._checks.worker``.

Compiles the network as it would be delivered, but without tuned kernels, and compares one inference
with the framework. The check runs in a separate process, since a failing compiler may crash its
process. The request is a line of JSON on standard input, the answer the last line on standard
output. The lines before the answer name the steps that are done. The arguments name modules to
import first.

The steps that refuse most networks come first: torch's export and TVM's import. The import names
all missing operators before anything is compiled. Meanwhile the framework runs the network.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError, TargetError
from chameleon_system.api import AnswerStream, Message, read_requests, temporary_folder
from chameleon_tvm.api import WAY_OUT, first_line

from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import check_target, manifest_of, write_artifact
from chameleon_networks._checks.check import CheckReport
from chameleon_networks._checks.error_search import SECONDS, ErrorSearch
from chameleon_networks._checks.near_ties import second_verdict
from chameleon_networks._compile.compile import CompiledNetwork, compile_network
from chameleon_networks._compile.loop_tasks import costly_functions, large_shares
from chameleon_networks._compile.unsupported_operator import (
    empty_kernels,
    first_unsupported_operator,
)
from chameleon_networks._evaluation.messages import network_from, preload
from chameleon_networks._evaluation.network_cache import NetworkCache, ReferenceOutputs, cache_of
from chameleon_networks._evaluation.profile import Profiler, summed
from chameleon_networks._evaluation.special_inputs import answered, special_inputs
from chameleon_networks._evaluation.state import outputs_and_state
from chameleon_networks._evaluation.verify import (
    DRAWS,
    LARGEST_TOLERANCE,
    Expected,
    OutputCheck,
    Run,
    SpecialCheck,
    are_finite,
    check_finite,
    compare_outputs,
    jittered,
    perturbed,
    samples_of,
)
from chameleon_networks._graph.cancellations import Cancellations, cancellations_of
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.prepare import LayoutError, prepare_module
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._step_times import Stopwatch

log = structlog.get_logger()


class Reference:
    """The outputs of a network's first reference that runs, computed while TVM compiles.

    Attributes:
        name: The name of the reference; before ``wait``, of the one that is tried first.
        expected: The reference's outputs. None before ``wait``, or if no reference is installed.
        seconds: Seconds of one inference, measured in ``wait`` while nothing else runs.
        opinions: Clauses that say whether other implementations agree with the reference.
    """

    def __init__(self, network: ImportedNetwork, threads: int) -> None:
        self.name: str = network.references[0]
        self.expected: Expected | None = None
        self.seconds = math.inf
        self.opinions: list[str] = []
        self._samples = samples_of(network.samples)
        self._special = special_inputs(network)
        self._first: Arrays = []
        self._checks: list[SpecialCheck] = []
        self.inputs = self._samples[0]
        self._network = network
        self._threads = threads
        # One thread runs all frameworks, because OpenMP's number of threads belongs to the thread
        # that sets it.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self._asked = self._pool.submit(self._answers)

    def cancellations(self, fusions: Sequence[FusionGroup]) -> Cancellations:
        """Estimate how much larger the errors of layers are, for few inputs if a run is slow."""
        special = [one.inputs for one in self._special if one.is_finite]
        batches = [self.inputs, *(special if self.seconds < _SLOW_SECONDS else ())]
        facts = fusions, self._network.graph, self._network.values, batches
        return self._pool.submit(cancellations_of, *facts).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait for the outputs, and time a second run, which must return the same outputs."""
        if self.expected is not None:
            return
        try:
            self.name, run, answers = self._asked.result()
            *others, again = self._pool.submit(self._timed, run).result()
            special = self._pool.submit(answered, run, self._special).result()
        except ImportError:
            return
        # The framework runs the user's code, which may raise anything.
        except Exception as error:
            raise ConfigError(
                f"{self.name} cannot run the network on random inputs: {first_line(error)}",
                hint="Nothing could be checked against it; call the network by hand. With "
                "`check: false` it is delivered unverified.",
            ) from error
        check_finite(self.name, [answers])
        problem = compare_outputs(again, answers).problem
        if problem is not None:
            raise ConfigError(
                f"{self.name} gives other answers when it gets the same inputs again: {problem}",
                hint="A delivered network remembers nothing. Make what this one keeps from call to "
                "call, as in a buffer, one of its inputs and one of its outputs.",
            )
        self._checks = [
            SpecialCheck(one, outputs, self._rounded_outputs, lenient=not one.is_finite)
            for one, outputs in zip(self._special, special, strict=True)
            if outputs is not None
        ]
        if self.seconds >= _SLOW_SECONDS:  # the delivery checks the rest
            self._checks = []
        self._first = answers
        self.expected = Expected(
            [self.inputs],
            [answers],
            self._exact,
            rounded=self._network.has_quantized_activations,
            special=self._checks,
            exact_outputs=self._network.exact_outputs,
        )
        kept, outputs = self._network.kept, [answers, *others]
        if isinstance(kept, NetworkCache) and are_finite(outputs):
            kept.store_outputs(
                ReferenceOutputs(reference=self.name, outputs=outputs, special=special),
                self._samples,
                self._special,
            )

    def _answers(self) -> tuple[str, Any, Arrays]:
        """Run the first reference that can: its name, itself and its outputs."""
        problems: list[Exception] = []
        for name in self._network.references:
            try:
                run = self._network.framework(name, self._threads)
                return name, run, run(_copies(self.inputs))
            except Exception as error:  # noqa: BLE001 - of any class, by the user's code
                log.warning("network_not_run", by=name, problem=first_line(error))
                problems.append(error)
        raise next((one for one in problems if not isinstance(one, ImportError)), problems[0])

    def arbitrated(self, ours: Run, verdict: OutputCheck) -> OutputCheck:
        """Let a third implementation decide whether the network or the reference is wrong."""
        self.opinions.clear()
        for name in self._network.arbiters:
            if name == self.name:
                continue
            try:
                run = self._network.framework(name, self._threads)
                answers = run(_copies(self.inputs))
                others = zip(self._special, answered(run, self._special), strict=True)
            except Exception as error:  # noqa: BLE001 - of any class, by any framework
                log.info("no_opinion", by=name, problem=first_line(error))
                continue
            compared = {check.special.label for check in self._checks}
            checks = [
                SpecialCheck(one, outputs, lambda _: (), lenient=not one.is_finite)
                for one, outputs in others
                if outputs is not None and one.label in compared
            ]
            exact = self._network.exact_outputs
            facts = [self.inputs], [answers], lambda: None
            own = Expected(*facts, special=checks, exact_outputs=exact).verdict(ours)
            if own.problem is None:
                log.warning("reference_is_wrong", reference=self.name, problem=verdict.problem)
                self.name = name
                return own
            theirs = compare_outputs(self._first, answers, tolerance=LARGEST_TOLERANCE)
            sides = "does not agree" if theirs.problem else "agrees"
            self.opinions.append(f"; {name} {sides} with {self.name}")
        return verdict

    def _timed(self, run: Any) -> list[Arrays]:
        """The outputs for other inputs, then those for the same inputs again."""
        answers, seconds = [], []
        for inputs in map(_copies, (*self._samples[1:], self.inputs)):
            started = time.perf_counter()
            answers.append(run(inputs))
            seconds.append(time.perf_counter() - started)
        self.seconds = min(seconds)
        return answers

    def _rounded_outputs(self, inputs: Arrays) -> list[Arrays]:
        """The reference's outputs in other roundings, to see how much they matter."""
        _, run, _ = self._asked.result()
        other = [run(jittered(inputs, draw)) for draw in range(DRAWS)]
        return [*other, *(self._exact(inputs) or ())]

    def _exact(self, inputs: Arrays | None = None) -> list[Arrays] | None:
        """The outputs in float64, or for perturbed inputs; None if they cannot be computed."""
        inputs = self.inputs if inputs is None else inputs
        if self._network.has_quantized_activations:
            _, run, _ = self._asked.result()
            return [run(perturbed(_copies(inputs)))]
        exact = self._network.exact
        if exact is None:
            return None
        try:
            return [self._network.framework(exact, self._threads)(_copies(inputs))]
        except Exception as error:  # noqa: BLE001 - only a better reason is lost
            log.warning("network_not_run", by=exact, problem=first_line(error))
            return None


def _copies(inputs: Arrays) -> Arrays:
    """Copies of the inputs, since a network may write to its inputs."""
    return [array.copy() for array in inputs]


_RUNS, _SLOW_SECONDS = 3, 0.5
"""Number of timed inferences of the network without tuned kernels. If one takes longer than
``_SLOW_SECONDS``, there is only one, because disturbances are short beside it."""

Tell = Callable[[Message], None]


def main() -> None:
    """Answer one request."""
    answers = AnswerStream()
    preload(sys.argv[1:])
    request = next(read_requests())
    steps = Stopwatch("start", request["started"])
    try:
        network = network_from(request)
        network.kept = cache_of(network)
        tempfile.tempdir = request["scratch"]
        folder = request["network"]["folder"]

        def tell(message: Message) -> None:
            if folder and message["done"] == "import":
                message = {**message, "programs": network.save_programs(folder)}
            answers.send(message)

        report = NetworkCheck(
            network, request["target"], request["threads"], steps=steps, tell=tell
        ).report(request["layouts"])
        answer = report.to_json()
    except ChameleonError as error:
        answer = {
            "problem": str(error),
            "hint": error.hint,
            "target": isinstance(error, TargetError),
        }
    except Exception as error:  # noqa: BLE001 - the parent shows any error
        answer = {"problem": f"the network cannot be read: {first_line(error)}", "hint": WAY_OUT}
    answers.send({**answer, "step_seconds": steps.until_now()})
    # Python would take seconds to free the objects of a large network one by one.
    os._exit(0)


class _LayoutFailedError(Exception):
    """A network cannot be delivered in one layout, but perhaps in another."""


class _WrongOutputsError(_LayoutFailedError):
    """A network can be compiled in one layout, but its outputs differ from the reference's."""


@attrs.frozen(eq=False)
class NetworkCheck:
    """Compiles a network in one layout after another, and compares it with the reference.

    Attributes:
        steps: An object that gets the wall-clock seconds of each step.
        tell: A function that is called with a message after a step that did not crash. The process
            that started this one then runs the same step for itself, while this process goes on.
            The key ``done`` names the step. For the step ``prepare``, the key ``layout`` has the
            layout.
    """

    network: ImportedNetwork
    target: str
    threads: int
    steps: Stopwatch = attrs.field(factory=lambda: Stopwatch("start"), kw_only=True)
    tell: Tell = attrs.field(default=lambda _: None, kw_only=True)

    def report(self, layouts: Sequence[str]) -> CheckReport:
        """Find the first layout in which a network can be compiled and has the right outputs."""
        network = self.network
        self.steps.begin("export")
        network.read_ahead()
        self.steps.begin("import")
        imported = network.imported
        network.keep()
        self.tell({"done": "import"})
        refused: dict[str, str] = {}
        is_compiled = False
        with Reference(network, self.threads) as reference:
            for layout in layouts:
                try:
                    return attrs.evolve(self._tried(layout, reference), refused=refused)
                except _LayoutFailedError as error:
                    refused[layout] = str(error)
                    is_compiled |= isinstance(error, _WrongOutputsError)
        self.steps.begin("find what fails")
        uncompilable = None
        if not is_compiled:
            uncompilable = first_unsupported_operator(
                imported, self.target, network.graph.locations
            )
        whole = "; ".join(f"in {layout}: {problem}" for layout, problem in refused.items())
        raise ConfigError(uncompilable or f"the network cannot be delivered: {whole}", hint=WAY_OUT)

    def _tried(self, layout: str, reference: Reference) -> CheckReport:
        """Compile and check the network in one layout."""
        with temporary_folder() as folder:
            network, fusions = self._written(layout, Path(folder))
            self.steps.begin("reference")
            reference.wait()
            expected, name = reference.expected, reference.name
            if expected is None:
                return CheckReport(layout=layout)
            if not self._runs_here():
                self.steps.begin("estimate errors")
                return CheckReport(layout=layout, cancellations=reference.cancellations(fusions))
            self.steps.begin("run")
            outputs, kernels, run = _profiled(folder, reference.inputs)
            self.steps.begin("compare")

            def ours(inputs: Arrays) -> Arrays:
                return outputs if inputs is reference.inputs else run(inputs)

            verdict = expected.verdict(ours)
            facts = empty_kernels(self.target), self.target, self.threads
            search = ErrorSearch(self.network, layout, *facts, seconds=SECONDS)
            if verdict.problem is not None:
                verdict = second_verdict(search, expected, ours, verdict)
            if verdict.problem is not None:
                verdict = reference.arbitrated(ours, verdict)
        name = reference.name
        if verdict.problem is not None:
            self.steps.begin("find what fails")
            cause = "".join([search.clause(expected), *reference.opinions])
            raise _WrongOutputsError(f"compared with {name}, {verdict.problem}{cause}")
        self.steps.begin("estimate errors")
        cancellations = reference.cancellations(fusions)
        # An untuned network may be many times slower than the tuned one. Functions that matter
        # after tuning would seem cheap in comparison, so the framework's time is the scale if it is
        # shorter.
        seconds = min(sum(kernel.seconds for kernel in kernels), reference.seconds)
        return CheckReport(
            layout=layout,
            max_relative_error=verdict.max_relative_error,
            reference=name,
            conditioning=expected.remark(name),
            reference_seconds=reference.seconds,
            unscheduled=large_shares(kernels, network.unscheduled, seconds),
            loops=costly_functions(network.functions, kernels, seconds),
            cancellations=cancellations,
        )

    def _written(self, layout: str, folder: Path) -> tuple[CompiledNetwork, Sequence[FusionGroup]]:
        """Compile the network without tuned kernels, and write its folder if it can run here."""
        self.steps.begin("prepare")
        try:
            module = prepare_module(self.network.imported, layout)
            fusions, none = find_fusions(module), empty_kernels(self.target)
            self.tell({"done": "prepare", "layout": layout})
            self.steps.begin("compile")
            network = compile_network(module, fusions, none, self.target)
        except LayoutError as error:
            raise _LayoutFailedError(str(error)) from error
        except ChameleonError:
            raise
        # TVM raises errors of many classes at networks that it cannot compile.
        except Exception as error:
            raise _LayoutFailedError(first_line(error)) from error
        if self._runs_here():
            self.steps.begin("link")
            manifest = manifest_of(module, fusions, none, self.target, self.threads)
            write_artifact(folder, network.executable, manifest)
        return network, fusions

    def _runs_here(self) -> bool:
        with contextlib.suppress(TargetError):
            check_target(self.target)
            return True
        return False


def _profiled(folder: str, inputs: Arrays) -> tuple[Arrays, list[NetworkResult.Kernel], Run]:
    """Run the network as a delivered one: its outputs, and the seconds of its kernels."""
    network = load(folder)
    profiler = Profiler(folder, inputs)
    runs = [profiler.run()]
    if sum(seconds for _, seconds in runs[0]) < _SLOW_SECONDS:
        # The first run had cold caches. This call goes through the loader, which checks its
        # arguments.
        outputs_and_state(network, _copies(inputs))
        runs = [profiler.run() for _ in range(_RUNS)]

    def run(inputs: Arrays) -> Arrays:
        return outputs_and_state(network, _copies(inputs))

    return profiler.outputs, summed(runs, profiler.tasks), run


if __name__ == "__main__":
    main()
