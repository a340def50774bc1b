"""Checks that a network has the same outputs for padded inputs as for unpadded ones.

A mean or a softmax over a padded axis changes, unless a mask among the inputs excludes the padding.
So the outputs for padded inputs are compared with the framework's outputs for unpadded inputs. The
comparison runs before tuning, with the framework alone, and again with the delivered network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError

from chameleon_networks._artifact.buckets import Buckets, Manifest
from chameleon_networks._artifact.dispatch import PaddingTest, all_padding_tests, dispatch_table
from chameleon_networks._evaluation.processes import NetworkProcess, reference_process
from chameleon_networks._evaluation.verify import Run, compare, samples_of
from chameleon_networks._importers.imported_network import BucketedNetwork

log = structlog.get_logger()

WAY_OUT = (
    "Give the network a mask as an input, with `pad: 0`, and have it take out what is masked; or "
    "leave out `pad`."
)


def check_padding(bucketed: BucketedNetwork, threads: int) -> list[str]:
    """Check with the framework that padding keeps outputs, with a sentence that says so."""
    tests = all_padding_tests(bucketed)
    with contextlib.ExitStack() as stack:
        known: dict[tuple[int, ...], NetworkProcess] = {}

        def run_of(probe: PaddingTest, inputs: Arrays, expected: Arrays) -> Run:
            if probe.padded not in known:
                # Tests are in the order of what is padded to, and each process needs memory.
                stack.close()
                known.clear()
                process = stack.enter_context(_reference(bucketed, probe.padded, threads))
                known[probe.padded] = process
            process = known[probe.padded]
            samples = bucketed.with_extents(probe.padded).samples(np.random.default_rng(0))
            table = dispatch_table(
                bucketed,
                [
                    ("asked", probe.asked, _signature(inputs, expected)),
                    ("padded", probe.padded, _signature(samples, process.outputs(samples))),
                ],
            )
            # The process can only run the padded extents.
            table["buckets"] = table["buckets"][1:]
            dispatched = Buckets(table, lambda _: lambda *arrays: process.outputs(list(arrays)))
            return lambda arrays: dispatched(*arrays)

        tested, problem = padding_problem(bucketed, tests, threads, run_of)
    if problem is not None:
        raise ConfigError(problem, hint=WAY_OUT)
    return [f"padding keeps the answers ({', '.join(tested)})"] if tested else []


def _signature(inputs: Arrays, outputs: Arrays) -> Manifest:
    """The shapes and dtypes of arrays, as ``signature_of`` has those of a network."""
    return {
        key: [{"shape": array.shape, "dtype": str(array.dtype)} for array in arrays]
        for key, arrays in (("inputs", inputs), ("outputs", outputs))
    }


RunOf = Callable[[PaddingTest, Arrays, Arrays], Run]


def padding_problem(
    bucketed: BucketedNetwork, tests: Sequence[PaddingTest], threads: int, run_of: RunOf
) -> tuple[list[str], str | None]:
    """The phrases of tests that ran, and a sentence that says how padding changes outputs."""
    tested: list[str] = []
    with contextlib.closing(_References(bucketed, threads)) as references:
        for probe in tests:
            try:
                samples, expected = _reference_outputs(references, probe)
            except ChameleonError as error:
                if probe.required:
                    raise
                log.info("padding_not_tested", test=probe.words, problem=str(error))
                continue
            verdict = compare(run_of(probe, samples[0], expected[0]), samples, expected)
            if verdict.problem is not None:
                problem = f"padding changes the answers: with {probe.words}, {verdict.problem}"
                return tested, problem
            tested.append(probe.words)
    return tested, None


@attrs.define
class _References:
    """The framework's networks for several extents, which one process runs in turn."""

    bucketed: BucketedNetwork
    threads: int
    _process: NetworkProcess | None = None

    def opened(self, extents: tuple[int, ...]) -> NetworkProcess:
        """The process, with the network for some extents."""
        if self._process is not None and self._process.alive:
            network = self.bucketed.with_extents(extents)
            inputs = network.samples(np.random.default_rng(0))
            with contextlib.suppress(ChameleonError):
                self._process.reopen(network, self.threads, inputs)
                return self._process
        self._process = _reference(self.bucketed, extents, self.threads)
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()


def _reference_outputs(
    references: _References, probe: PaddingTest
) -> tuple[list[Arrays], list[Arrays]]:
    """Inputs with the extents of a test, and the framework's outputs for them."""
    samples = samples_of(references.bucketed.with_extents(probe.asked).samples)
    # Beside numbers of both signs, padding with zeros changes no maximum and no minimum.
    signed = [_of_sign(sign, samples[0]) for sign in (-1, 1)]
    reference = references.opened(probe.asked)
    expected = [reference.outputs(inputs) for inputs in samples]
    for inputs in signed:
        outputs = reference.outputs(inputs)
        # Some networks take no negative numbers, such as the logarithm of a sum.
        if all(np.isfinite(output).all() for output in outputs):
            samples.append(inputs)
            expected.append(outputs)
    return samples, expected


def _of_sign(sign: int, inputs: Arrays) -> Arrays:
    """Inputs with numbers of one sign, except for masks and what was never negative."""
    return [
        sign * abs(x) if x.dtype.kind == "f" and (x < 0).any() and np.isfinite(x).all() else x
        for x in inputs
    ]


def _reference(bucketed: BucketedNetwork, extents: tuple[int, ...], threads: int) -> NetworkProcess:
    network = bucketed.with_extents(extents)
    inputs = network.samples(np.random.default_rng(0))
    try:
        return reference_process(network, inputs, threads=threads)
    except ChameleonError as error:
        raise ConfigError(
            f"padding cannot be verified, since nothing else runs the network with "
            f"{bucketed.named(extents)}: {error}",
            hint=f"{error.hint} Without `pad` nothing is padded, and this is not needed.",
        ) from error


def check_pads(bucketed: BucketedNetwork) -> None:
    """Check that the dtype of each input can represent the value that the input is padded with.

    Raises:
        ConfigError: A number cannot be represented.
    """
    if not any(dimension.padded for dimension in bucketed.dimensions):
        return
    samples = bucketed.networks[0][1].samples(np.random.default_rng(0))
    for dimension in bucketed.dimensions:
        for axis in dimension.axes:
            kind: Any = samples[bucketed.input_names.index(axis.input)].dtype
            if axis.pad is not None and np.asarray(axis.pad).astype(kind) != axis.pad:
                raise ConfigError(
                    f"{axis.input} is of {kind} and cannot be padded with {axis.pad:g}",
                    hint="`pad` is a number of the input's type, most often 0.",
                )
