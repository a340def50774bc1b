"""Whether a network can be delivered at all: ``python -m chameleon_tvm.graph.examine``.

The network is compiled as it would be delivered, without tuned kernels, and run once against the
framework. That happens in a process of its own, since a compiler that fails may take its process
along. The request is a line of JSON on standard input, the answer one on standard output.
"""

from __future__ import annotations

import importlib
import math
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError, ConfigError, TargetError
from chameleon_core.stages import Arrays
from chameleon_system.processes.answering import Answers, requests

from chameleon_tvm.graph.verify import Expected
from chameleon_tvm.words import WAY_OUT, first_line

log = structlog.get_logger()

_RUNS, _SLOW_SECONDS = 3, 0.5
"""Inferences of the network without tuned kernels that are timed: enough to tell what counts. One
that takes longer is timed once: a disturbance is short beside it."""


def main() -> None:
    """Answer one request."""
    answers = Answers()
    request = next(requests())
    serve = importlib.import_module("chameleon_tvm.graph.serve")
    try:
        frontend = serve.requested_frontend(request)
        answer = examined(frontend, request["layouts"], request["target"], request["threads"])
    except ChameleonError as error:
        answer = {
            "problem": str(error),
            "hint": error.hint,
            "target": isinstance(error, TargetError),
        }
    except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
        answer = {"problem": f"the network cannot be read: {first_line(error)}", "hint": WAY_OUT}
    answers.send(answer)
    # What is left of a network of this size takes seconds to be freed one by one.
    os._exit(0)


def examined(frontend: Any, layouts: Sequence[str], target: str, threads: int) -> dict[str, Any]:
    """The first layout that a network can be compiled in, and how well its answers agree.

    Args:
        frontend: the network's.
        layouts: to try, in order.
        target: the resolved target.
        threads: that the framework computes with.

    Returns:
        ``layout``, ``max_relative_error``, ``reference``; ``refused``, which says what is wrong
        with the layouts before it; ``loops``, the functions that are worth tuning although they
        are no products (``loop_tasks.costly_functions``); and ``conditioning``, a sentence where
        the framework's own rounding makes a larger error right than usual. Without a reference, or
        on another CPU, there is no error.

    Raises:
        ConfigError: there is no such layout; says what is wrong.
    """
    inputs = frontend.samples(np.random.default_rng(0))
    reference = _reference(frontend, inputs, threads)
    name = reference.name
    refused: dict[str, str] = {}
    for layout in layouts:
        try:
            network = _network(frontend, layout, target, threads, inputs)
        except _LayoutFailedError as error:
            refused[layout] = str(error)
            continue
        if network is None or reference.expected is None:
            return {"layout": layout, "reference": None, "refused": refused, "loops": []}
        verdict = reference.expected.verdict(partial(_given, network.outputs))
        if verdict.problem is None:
            conditioning = reference.expected.conditioning
            return {
                "layout": layout,
                "max_relative_error": verdict.max_relative_error,
                "reference": name,
                "conditioning": conditioning and conditioning.sentence(name),
                "refused": refused,
                "loops": _costly(network, reference.seconds),
            }
        refused[layout] = f"compared with {name}, {verdict.problem}"
    failing = importlib.import_module("chameleon_tvm.graph.uncompilable")
    guilty = failing.first_uncompilable(frontend.imported, target, frontend.locations)
    if guilty is not None:
        raise ConfigError(f"{guilty.operator} cannot be compiled: {guilty.problem}", hint=WAY_OUT)
    whole = "; ".join(f"in {layout}: {problem}" for layout, problem in refused.items())
    raise ConfigError(f"the network cannot be delivered: {whole}", hint=WAY_OUT)


class _LayoutFailedError(Exception):
    """A network cannot be compiled in one layout, though maybe in another one."""


@attrs.frozen(kw_only=True, eq=False)
class _Network:
    """A compiled network.

    Attributes:
        outputs: for the inputs that the framework was given.
        functions: of its kernels before they were scheduled, by the kernels' names.
        kernels: where its time goes; see ``profile.kernel_seconds``.
    """

    outputs: Arrays
    functions: Mapping[str, Any]
    kernels: Sequence[Mapping[str, Any]]


def _costly(network: _Network, seconds: float) -> list[dict[str, Any]]:
    """Functions worth tuning: by their share of the framework's time, or of the network's own.

    Without tuned kernels the network may take many times as long as it will, in which what takes
    long later is lost; the framework's time is the scale that is there before anything is tuned.
    """
    tasks = importlib.import_module("chameleon_tvm.graph.loop_tasks")
    own = sum(float(row["seconds"]) for row in network.kernels)
    found: list[dict[str, Any]] = tasks.costly_functions(
        network.functions, network.kernels, min(own, seconds)
    )
    return found


def _network(
    frontend: Any, layout: str, target: str, threads: int, inputs: Arrays
) -> _Network | None:
    """The network as it would be delivered, without a tuned kernel; None where it cannot run here.

    It is linked and loaded as a delivered one is: what fails there would fail at the end of a run.
    """
    chains = importlib.import_module("chameleon_tvm.graph.chains")
    compiling = importlib.import_module("chameleon_tvm.graph.compile")
    failing = importlib.import_module("chameleon_tvm.graph.uncompilable")
    package = importlib.import_module("chameleon_tvm.graph.package")
    prepare = importlib.import_module("chameleon_tvm.graph.prepare")
    load = importlib.import_module("chameleon_tvm.graph.load").load
    imported = frontend.imported
    try:
        module = prepare.prepared(imported, layout)
        found, none = chains.chains_of(module), failing.no_kernels(target)
        made = compiling.compiled(module, found, none, target)
    except prepare.LayoutError as error:
        raise _LayoutFailedError(str(error)) from error
    except ChameleonError:
        raise
    except Exception as error:
        raise _LayoutFailedError(first_line(error)) from error
    try:
        package.check_target(target)
    except TargetError:
        return None
    manifest = package.manifest_of(module, found, none, target, threads)
    with tempfile.TemporaryDirectory(prefix="chameleon-check-") as folder:
        package.write_package(Path(folder), made.executable, manifest)
        network = load(folder)
        started = time.perf_counter()
        outputs = network(*inputs)
        quick = time.perf_counter() - started < _SLOW_SECONDS
        profile = importlib.import_module("chameleon_tvm.graph.profile")
        seconds = profile.kernel_seconds(folder, inputs, runs=_RUNS if quick else 1, warm_up=0)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return _Network(outputs=outputs, functions=made.functions, kernels=seconds)


@attrs.frozen(kw_only=True, eq=False)
class _Reference:
    """The framework's answers, None where it is not installed, and how long they took."""

    name: str
    expected: Expected | None = None
    seconds: float = math.inf


def _reference(frontend: Any, inputs: Arrays, threads: int) -> _Reference:
    """The framework's answers, and the time of its second run."""
    name = frontend.frameworks[0]
    try:
        run = frontend.framework(name, threads)
        expected = run(inputs)
        started = time.perf_counter()
        run(inputs)
        seconds = time.perf_counter() - started
    except ImportError:
        return _Reference(name=name)
    except Exception as error:
        raise ConfigError(
            f"{name} cannot run the network on random inputs: {first_line(error)}",
            hint="Nothing could be checked against it; call the network by hand.",
        ) from error
    if not all(np.isfinite(one).all() for one in expected if one.dtype.kind == "f"):
        raise ConfigError(
            f"{name} computes numbers that are not finite, so that nothing can be checked against "
            "them",
            hint="Look for NaN among the weights, or for inputs that the network divides by.",
        )
    exact = partial(_exact, frontend, inputs, threads)
    return _Reference(name=name, expected=Expected([inputs], [expected], exact), seconds=seconds)


def _exact(frontend: Any, inputs: Arrays, threads: int) -> list[Arrays] | None:
    """The framework's answers in float64; None where it has none."""
    if frontend.exact is None:
        return None
    try:
        return [frontend.framework(frontend.exact, threads)(inputs)]
    except Exception as error:  # noqa: BLE001 - of torch's own, and only a better reason is lost
        log.warning("network_not_run", by=frontend.exact, problem=first_line(error))
        return None


def _given(outputs: Arrays, _: Arrays) -> Arrays:
    """What a network gave that has run already."""
    return outputs


if __name__ == "__main__":
    main()
