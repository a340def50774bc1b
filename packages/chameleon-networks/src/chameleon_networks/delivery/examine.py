"""Whether a network can be delivered at all: ``python -m chameleon_networks.delivery.examine``.

The network is compiled as it would be delivered, without tuned kernels, and run once against the
framework. That happens in a process of its own, since a compiler that fails may take its process
along. The request is a line of JSON on standard input, the answer the last one on standard output.
The lines before it name the steps that have not crashed. Arguments name modules to import first.

The steps that refuse most networks come first: torch's export and TVM's import. The import names
all lacking operators before anything is compiled. Meanwhile the framework runs the network.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError, ConfigError, TargetError
from chameleon_core.network_result import KernelTime
from chameleon_core.stages import Arrays
from chameleon_system.processes.answering import Answers, Message, requests
from chameleon_tvm.words import WAY_OUT, first_line
from numpy.typing import NDArray

from chameleon_networks.compile.compile import CompiledNetwork, compiled
from chameleon_networks.compile.loop_tasks import costly_functions, large_shares
from chameleon_networks.compile.uncompilable import first_uncompilable, no_kernels
from chameleon_networks.delivery.check_report import CheckReport
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.prepare import LayoutError, prepared
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.package.load import load
from chameleon_networks.package.package import check_target, manifest_of, write_package
from chameleon_networks.running.profile import Profiler
from chameleon_networks.running.requests import requested_network
from chameleon_networks.running.verify import Expected, agreement, nudged
from chameleon_networks.step_seconds import StepSeconds

log = structlog.get_logger()


class Reference:
    """The answers of a network's first framework; asked in a thread until ``wait`` is called.

    TVM compiles in the meantime: both leave Python's lock to others while they compute.

    Args:
        network: its program has been read.
        inputs: of one inference.
        threads: that the framework computes with.

    Attributes:
        name: of the framework.
        inputs: as given.
        expected: its answers; None if it is not installed, or has not been waited for.
        seconds: of an inference, with nothing beside it.
    """

    def __init__(self, network: ImportedNetwork, inputs: Arrays, threads: int) -> None:
        self.name: str = network.frameworks[0]
        self.expected: Expected | None = None
        self.seconds = math.inf
        self.inputs = inputs
        self._network = network
        self._threads = threads
        # One thread for all: OpenMP's number of threads is that of the thread that sets it.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="reference")
        self._asked = self._pool.submit(self._answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Have the answers, and time another inference.

        Raises:
            ConfigError: the framework cannot run the network, its answers are not finite, or they
                depend on the calls before.
        """
        if self.expected is not None:
            return
        try:
            run, answers = self._asked.result()
            again = self._pool.submit(self._timed, run).result()
        except ImportError:
            return
        # The framework runs the user's code, which may raise anything.
        except Exception as error:
            raise ConfigError(
                f"{self.name} cannot run the network on random inputs: {first_line(error)}",
                hint="Nothing could be checked against it; call the network by hand.",
            ) from error
        if not all(_known(answer) for answer in answers):
            raise ConfigError(
                f"{self.name} computes numbers that are not finite, so that nothing can be checked "
                "against them",
                hint="Look for NaN among the weights, or for inputs that the network divides by.",
            )
        problem = agreement(again, answers).problem
        if problem is not None:
            raise ConfigError(
                f"{self.name} gives other answers when it gets the same inputs again: {problem}",
                hint="A delivered network remembers nothing. Make what this one keeps from call to "
                "call, as in a buffer, one of its inputs and one of its outputs.",
            )
        self.expected = Expected(
            [self.inputs], [answers], self._exact, rounded=self._network.has_quantized_activations
        )

    def _answers(self) -> tuple[Any, Arrays]:
        run = self._network.framework(self.name, self._threads)
        return run, run(self._copies())

    def _timed(self, run: Any) -> Arrays:
        """Its answers when it runs again, after it has run on other inputs."""
        others = self._network.samples(np.random.default_rng(1))
        seconds = []
        for inputs in (others, self._copies()):
            started = time.perf_counter()
            answers: Arrays = run(inputs)
            seconds.append(time.perf_counter() - started)
        self.seconds = min(seconds)
        return answers

    def _copies(self) -> Arrays:
        """The inputs, which a network may write to."""
        return [array.copy() for array in self.inputs]

    def _exact(self) -> list[Arrays] | None:
        """The framework's answers in float64, or for nudged inputs; None if it has none."""
        if self._network.has_quantized_activations:
            run, _ = self._asked.result()
            return [run(nudged(self._copies()))]
        exact = self._network.exact
        if exact is None:
            return None
        try:
            return [self._network.framework(exact, self._threads)(self._copies())]
        except Exception as error:  # noqa: BLE001 - torch's own; only a better reason is lost
            log.warning("network_not_run", by=exact, problem=first_line(error))
            return None


def _known(answer: NDArray[Any]) -> bool:
    """Whether numbers can be compared with others; what a mask leaves out is minus infinity."""
    if answer.dtype.kind != "f":
        return True
    return bool((np.isfinite(answer) | np.isneginf(answer)).all())


_RUNS, _SLOW_SECONDS = 3, 0.5
"""Inferences of the network without tuned kernels that are timed: enough to tell what counts. One
that takes longer is timed once: a disturbance is short beside it."""

Tell = Callable[[Message], None]


def main() -> None:
    """Answer one request."""
    answers = Answers()
    for name in sys.argv[1:]:
        # If something is missing, the network's reading says so better.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    request = next(requests())
    steps = StepSeconds("start", request["started"])
    try:
        network = requested_network(request)
        tempfile.tempdir = request["scratch"]
        report = examined(
            network,
            request["layouts"],
            request["target"],
            request["threads"],
            steps=steps,
            tell=answers.send,
        )
        answer = report.to_json()
    except ChameleonError as error:
        answer = {
            "problem": str(error),
            "hint": error.hint,
            "target": isinstance(error, TargetError),
        }
    except Exception as error:  # noqa: BLE001 - the parent shows whatever it is
        answer = {"problem": f"the network cannot be read: {first_line(error)}", "hint": WAY_OUT}
    answers.send({**answer, "step_seconds": steps.until_now()})
    # What is left of a network of this size takes seconds to be freed one by one.
    os._exit(0)


def examined(
    network: ImportedNetwork,
    layouts: Sequence[str],
    target: str,
    threads: int,
    *,
    steps: StepSeconds | None = None,
    tell: Tell = lambda _: None,
) -> CheckReport:
    """The first layout that a network can be compiled in, and how well its answers agree.

    Args:
        network: as its framework has it.
        layouts: to try, in order.
        target: the resolved target.
        threads: that the framework computes with.
        steps: notes how long each step takes.
        tell: gets ``done``, the name of a step that another process may repeat now, and with
            ``prepare`` the ``layout``.

    Raises:
        ConfigError: there is no such layout; says what is wrong.
    """
    steps = steps or StepSeconds("start")
    steps.begin("export")
    network.read_ahead()
    steps.begin("import")
    imported = network.imported
    tell({"done": "import"})
    refused: dict[str, str] = {}
    with Reference(network, network.samples(np.random.default_rng(0)), threads) as reference:
        examination = _Examination(
            network=network,
            target=target,
            threads=threads,
            reference=reference,
            steps=steps,
            tell=tell,
        )
        for layout in layouts:
            try:
                return attrs.evolve(examination.tried(layout), refused=refused)
            except _LayoutFailedError as error:
                refused[layout] = str(error)
    steps.begin("find what fails")
    guilty = first_uncompilable(imported, target, network.graph.locations)
    if guilty is not None:
        raise ConfigError(f"{guilty.operator} cannot be compiled: {guilty.problem}", hint=WAY_OUT)
    whole = "; ".join(f"in {layout}: {problem}" for layout, problem in refused.items())
    raise ConfigError(f"the network cannot be delivered: {whole}", hint=WAY_OUT)


class _LayoutFailedError(Exception):
    """A network cannot be delivered in one layout, though maybe in another one."""


@attrs.frozen(kw_only=True, eq=False)
class _Examination:
    """Compiles a network in each layout, and compares it with the reference."""

    network: ImportedNetwork
    target: str
    threads: int
    reference: Reference
    steps: StepSeconds
    tell: Tell

    def tried(self, layout: str) -> CheckReport:
        """The answer of ``examined`` for a layout.

        Raises:
            _LayoutFailedError: it cannot be delivered in it.
            ConfigError: nor can it in any other one.
        """
        with tempfile.TemporaryDirectory() as folder:
            network = self._written(layout, Path(folder))
            self.steps.begin("reference")
            self.reference.wait()
            expected, name = self.reference.expected, self.reference.name
            if expected is None or not self._runs_here():
                return CheckReport(layout=layout)
            self.steps.begin("run")
            outputs, kernels = _profiled(folder, self.reference.inputs)
        self.steps.begin("compare")
        verdict = expected.verdict(partial(_outputs, outputs))
        if verdict.problem is not None:
            raise _LayoutFailedError(f"compared with {name}, {verdict.problem}")
        conditioning = expected.conditioning
        # Without tuned kernels it may take many times as long as it will, in which what takes long
        # later is lost; the framework's time is the scale that is there before anything is tuned.
        seconds = min(sum(kernel.seconds for kernel in kernels), self.reference.seconds)
        return CheckReport(
            layout=layout,
            max_relative_error=verdict.max_relative_error,
            reference=name,
            conditioning=None if conditioning is None else conditioning.sentence(name),
            reference_seconds=self.reference.seconds,
            unscheduled=large_shares(kernels, network.unscheduled, seconds),
            loops=costly_functions(network.functions, kernels, seconds),
        )

    def _written(self, layout: str, folder: Path) -> CompiledNetwork:
        """Write the network as it would be delivered, without a tuned kernel."""
        self.steps.begin("prepare")
        try:
            module = prepared(self.network.imported, layout)
            chains, none = chains_of(module), no_kernels(self.target)
            self.tell({"done": "prepare", "layout": layout})
            self.steps.begin("compile")
            network = compiled(module, chains, none, self.target)
        except LayoutError as error:
            raise _LayoutFailedError(str(error)) from error
        except ChameleonError:
            raise
        # TVM raises errors of many classes at networks that it cannot compile.
        except Exception as error:
            raise _LayoutFailedError(first_line(error)) from error
        if self._runs_here():
            self.steps.begin("link")
            manifest = manifest_of(module, chains, none, self.target, self.threads)
            write_package(folder, network.executable, manifest)
        return network

    def _runs_here(self) -> bool:
        try:
            check_target(self.target)
        except TargetError:
            return False
        return True


def _profiled(folder: str, inputs: Arrays) -> tuple[Arrays, list[KernelTime]]:
    """Outputs of a network, and the seconds of its kernels; see ``profile.kernel_seconds``.

    It is loaded as a delivered one is: what fails there would fail at the end of a run.
    """
    network = load(folder)
    profiler = Profiler(folder, inputs)
    runs = [profiler.run()]
    if sum(seconds for _, seconds in runs[0]) < _SLOW_SECONDS:
        # The first one found cold caches; what the loader does with arguments is seen here.
        network(*inputs)
        runs = [profiler.run() for _ in range(_RUNS)]
    return profiler.outputs, profiler.summed(runs)


def _outputs(outputs: Arrays, _: Arrays) -> Arrays:
    """The outputs of a network that has run already."""
    return outputs


if __name__ == "__main__":
    main()
