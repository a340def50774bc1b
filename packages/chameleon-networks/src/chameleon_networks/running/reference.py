"""A framework's answers, computed beside something else, and how long they take."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
import structlog
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays
from chameleon_tvm.words import first_line
from numpy.typing import NDArray

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.running.verify import Expected, agreement, nudged

log = structlog.get_logger()


class Reference:
    """What a network's first framework answers; asked in a thread until ``wait`` is called.

    TVM compiles in the meantime: both leave Python's lock to others while they compute.

    Args:
        network: its program has been read.
        inputs: of one inference.
        threads: that the framework computes with.

    Attributes:
        name: of the framework.
        inputs: as given.
        expected: its answers; None where it is not installed, or has not been waited for.
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
        except Exception as error:
            raise ConfigError(
                f"{self.name} cannot run the network on random inputs: {first_line(error)}",
                hint="Nothing could be checked against it; call the network by hand.",
            ) from error
        if not all(_known(one) for one in answers):
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
        started = time.perf_counter()
        run(others)
        self.seconds = time.perf_counter() - started
        answers: Arrays = run(self._copies())
        return answers

    def _copies(self) -> Arrays:
        """The inputs, which a network may write to."""
        return [array.copy() for array in self.inputs]

    def _exact(self) -> list[Arrays] | None:
        """The framework's answers in float64, or for nudged inputs; None where it has none."""
        if self._network.has_quantized_activations:
            run, _ = self._asked.result()
            return [run(nudged(self._copies()))]
        exact = self._network.exact
        if exact is None:
            return None
        try:
            return [self._network.framework(exact, self._threads)(self._copies())]
        except Exception as error:  # noqa: BLE001 - of torch's own, and only a better reason is lost
            log.warning("network_not_run", by=exact, problem=first_line(error))
            return None


def _known(answer: NDArray[Any]) -> bool:
    """Whether numbers can be compared with others; what a mask leaves out is minus infinity."""
    if answer.dtype.kind != "f":
        return True
    return bool((np.isfinite(answer) | np.isneginf(answer)).all())
