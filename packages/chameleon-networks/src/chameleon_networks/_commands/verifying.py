"""The implementation of ``chameleon verify``: compares outputs, and finds where errors begin."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
import structlog
from chameleon_cli.api import print_table, results_alone
from chameleon_core.api import RunFile, RunView, words
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError, ExitCode
from numpy.typing import NDArray

from chameleon_networks._artifact.writer import MANIFEST, read_manifest
from chameleon_networks._checks.error_search import ErrorSearch
from chameleon_networks._checks.near_ties import network_with_choices
from chameleon_networks._commands import runs
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._evaluation import verify
from chameleon_networks._evaluation.processes import (
    NetworkProcess,
    delivered_process,
    framework_process,
    reference_process,
)
from chameleon_networks._evaluation.special_inputs import special_inputs
from chameleon_networks._evaluation.state import in_sequence
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._names import output_names
from chameleon_networks._quantize.calibration_batches import user_samples

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class OutputError:
    """The error of one output of a network.

    Attributes:
        name: The name of the output.
        shape: The shape of the output.
        max_relative_error: The largest difference from the framework's output over the largest
            number in that output, of all batches of inputs. None if shapes differ or numbers are
            not finite.
        right: Whether the error is within the tolerance.
    """

    name: str
    shape: tuple[int, ...]
    max_relative_error: float | None
    right: bool


@attrs.frozen(kw_only=True)
class Verification:
    """The result of comparing a network with its framework.

    Attributes:
        batches: Number of compared batches of inputs.
        tolerance: The largest allowed error. None if any error is allowed.
        outputs: The error of each output.
        special: A sentence about special inputs, such as NaN, for which the network is wrong. Empty
            if there are none, or if they were not compared.
        cause: A sentence that names the operator at which errors begin. Empty if all errors are
            within the tolerance.
    """

    reference: str
    batches: int
    tolerance: float | None
    outputs: tuple[OutputError, ...]
    special: str = ""
    cause: str = ""


def verified(folder: Path, inputs: str | None, *, trust_source: bool) -> Mapping[str, Verification]:
    """Compare a delivered network with its framework, by bucket (``""`` for one shape)."""
    if folder.name == RunFile.NETWORK and (folder / MANIFEST).exists():
        folder = folder.parent
    with results_alone(), RunView(folder) as run:
        pipeline = run.model_choice(trust_source=trust_source)
        work, delivered = runs.network_of(pipeline, run), runs.delivered_in(folder)
        winners = {
            winner.task.key: winner
            for winner in (*run.winners, *run.guesses(pipeline))
            if not winner.task.alternative_of
        }
        kernels = Kernels(winners, pipeline.space.create(), run.target)
        return {
            name: Comparison(
                network=frontend.network,
                folder=delivered,
                manifest=read_manifest(runs.bucket_folder(delivered, name)),
                kernels=kernels,
                target=run.target,
                threads=runs.threads_of(run),
            ).of(
                _samples(frontend.network, inputs),
                special_inputs(frontend.network) if inputs is None else (),
            )
            for name, frontend in work.by_bucket.items()
        }


def show(folder: Path, buckets: Mapping[str, Verification], *, as_json: bool) -> None:
    """Print the results of ``chameleon verify``; exit with an error if an output is wrong."""
    if as_json:
        results = {name: attrs.asdict(one) for name, one in buckets.items()}
        alone = results.get("")
        value = {"buckets": results} if alone is None else alone
        click.echo(json.dumps({"run": str(folder.absolute()), **value}))
    for name, one in buckets.items():
        if not as_json:
            _show_bucket(name, one)
        for problem in filter(None, (one.special, one.cause)):
            click.echo(f"error: {problem}", err=True)
    wrong = any(not output.right for one in buckets.values() for output in one.outputs)
    if wrong or any(one.special for one in buckets.values()):
        raise SystemExit(ExitCode.NO_VALID_RESULT)


def _show_bucket(name: str, one: Verification) -> None:
    where = f"bucket {name}: " if name else ""
    allowed = "" if one.tolerance is None else f"; an error of {one.tolerance:.1e} is allowed"
    inferences = words.counted(one.batches, "inference")
    click.echo(f"{where}{inferences} compared with {one.reference}{allowed}")
    rows = [
        (
            output.name,
            " x ".join(map(str, output.shape)) or "scalar",
            "-" if output.max_relative_error is None else f"{output.max_relative_error:.1e}",
            "yes" if output.right else "no",
        )
        for output in one.outputs
    ]
    print_table(("output", "shape", "error", "right"), rows)


def _samples(network: ImportedNetwork, source: str | None) -> list[verify.Sample]:
    """The batches of inputs to compare: the user's, or random ones."""
    if source is None:
        return [verify.Sample(inputs=inputs) for inputs in verify.samples_of(network.samples)]
    samples = list(user_samples(network, source, "--inputs"))
    if not samples:
        raise ConfigError(f"--inputs: {source} yields no batch", hint="Yield at least one.")
    return samples


@attrs.frozen(kw_only=True, eq=False)
class Comparison:
    """Compares a delivered network with its framework, and also parts of the network.

    Attributes:
        folder: The delivered folder.
        manifest: The manifest of the network in the folder.
        kernels: The tuned kernels that the network was compiled with.
    """

    network: ImportedNetwork
    folder: Path
    manifest: Mapping[str, Any]
    kernels: Kernels
    target: str
    threads: int

    def of(
        self, samples: Sequence[verify.Sample], special: Sequence[verify.SpecialInputs] = ()
    ) -> Verification:
        """Compare the delivered network's outputs with its framework's, also for special inputs."""
        inputs = [sample.inputs for sample in samples]
        with self._reference(inputs[0]) as process:
            reference = process.name
            answers = [process.outputs(arrays) for arrays in inputs]
            checks = [] if self._is_reduced else list(self._checks(special, process))
            answers += self._later_calls(process.outputs, inputs)
        wanted = [sample.cut(outputs) for sample, outputs in zip(samples, answers, strict=False)]
        wanted += answers[len(samples) :]
        scales, allowed = verify.magnitudes(answers), self._allowed
        exact = frozenset() if self._is_reduced else self.network.exact_outputs

        def compared(run: verify.Run) -> tuple[NDArray[np.float64], list[str | None]]:
            """The errors of all outputs, and what is wrong for the special inputs."""
            given = [sample.run(run) for sample in samples]
            given += self._later_calls(run, inputs)
            errors = _errors(given, wanted, exact)
            return errors, [one.problem(run, scales, allowed) for one in checks]

        with delivered_process("the delivered network", self.folder, threads=self.threads) as ours:
            errors, problems = compared(ours.outputs)
            if errors.max() > allowed or any(problems):
                with network_with_choices(self._search, ours.outputs, allowed) as run:
                    errors, problems = (errors, problems) if run is None else compared(run)
        tolerance = self._tolerance(reference, float(errors.max()), inputs, answers)
        names = [*output_names(self.network.returned), *self.network.state]
        outputs = tuple(
            OutputError(
                name=name,
                shape=array.shape,
                max_relative_error=float(error) if math.isfinite(error) else None,
                right=bool(error <= tolerance),
            )
            for name, array, error in zip(names, wanted[0], errors.max(axis=0), strict=True)
        )
        wrong = np.argwhere(errors > tolerance).tolist()
        cause = (
            self._cause(inputs[wrong[0][0] % len(inputs)], wrong[0][1], tolerance) if wrong else ""
        )
        found = zip(checks, problems, strict=True)
        check, problem = next((pair for pair in found if pair[1]), (None, None))
        if check is not None and not wrong:
            cause = self._cause(check.special.inputs, check.wrong_output, tolerance)
        return Verification(
            reference=reference,
            batches=len(wanted),
            tolerance=tolerance if math.isfinite(tolerance) else None,
            outputs=outputs,
            special=problem or "",
            cause=cause,
        )

    def _reference(self, inputs: Arrays) -> NetworkProcess:
        """The reference, which is the one of the delivery if another one was found wrong then."""
        facts = self.manifest["verification"]
        preferred = facts["reference"] if facts.get("disagreement") else None
        return reference_process(self.network, inputs, threads=self.threads, preferred=preferred)

    def _later_calls(self, run: verify.Run, inputs: Sequence[Arrays]) -> list[Arrays]:
        """The outputs of calls with the same inputs that keep a state; none if there is none."""
        if not self.network.state:
            return []
        initial = (self.network.example_inputs or [])[-len(self.network.state) :]
        return in_sequence(run, inputs, initial)

    def _checks(
        self, special: Sequence[verify.SpecialInputs], process: NetworkProcess
    ) -> Iterator[verify.SpecialCheck]:
        """Let the framework compute its outputs for special inputs, unless it refuses them."""
        fused = bool(self.kernels.winners)
        for one in special:
            if process.alive:
                with contextlib.suppress(ChameleonError):
                    outputs = process.outputs(one.inputs)
                    lenient = one.may_spread or (fused and not one.is_finite)
                    yield verify.SpecialCheck(one, outputs, self._rounded, lenient=lenient)

    def _rounded(self, inputs: Arrays) -> list[Arrays]:
        """The framework's outputs in other roundings."""
        with self._reference(inputs) as process:
            answers = [
                process.outputs(verify.jittered(inputs, draw)) for draw in range(verify.DRAWS)
            ]
        if self.network.exact is not None:
            exact = framework_process(self.network, self.network.exact, threads=self.threads)
            with exact as process:
                answers.append(process.outputs(inputs))
        return answers

    @property
    def _allowed(self) -> float:
        allowed = self.manifest["verification"]["tolerance"]
        return math.inf if allowed is None else float(allowed)

    def _tolerance(
        self, reference: str, error: float, inputs: Sequence[Arrays], answers: Sequence[Arrays]
    ) -> float:
        """The error that the delivery allowed, or more if the framework rounds by more."""
        allowed = self._allowed
        if error <= allowed or error > verify.LARGEST_TOLERANCE or self._is_reduced:
            return allowed
        rounded = self.network.has_quantized_activations
        name = reference if rounded else self.network.exact
        if name is None:
            return allowed
        try:
            with framework_process(self.network, name, threads=self.threads) as process:
                others = [
                    process.outputs(verify.perturbed(one) if rounded else one) for one in inputs
                ]
        except ChameleonError as problem:
            log.warning("network_not_run", by=name, problem=str(problem))
            return allowed
        own = answers[: len(others)]
        return max(allowed, verify.Conditioning.of(own, others, perturbed=rounded).tolerance)

    @property
    def _is_reduced(self) -> bool:
        return "max_relative_error" in self.manifest.get("precision", {})

    def _cause(self, inputs: Arrays, output: int, tolerance: float) -> str:
        """A sentence that names the operator at which the errors of an output begin."""
        if self._is_reduced:
            return "errors are larger than allowed; in reduced precision each operator adds to them"
        return self._search.cause(inputs, output, tolerance) or (
            "the delivered network is wrong, but compiled again from the run's records it is "
            "right: deliver it again with `chameleon compile`"
        )

    @property
    def _search(self) -> ErrorSearch:
        facts = self.network.layout, self.kernels, self.target, self.threads
        return ErrorSearch(self.network, *facts)


def _errors(
    given: Sequence[Arrays], wanted: Sequence[Arrays], exact: Collection[int]
) -> NDArray[np.float64]:
    """The error of each output of each sample, over the output's largest number in all samples.

    The error of an output of ``exact`` with other numbers is infinite.
    """
    scales = verify.magnitudes(wanted)
    errors = np.array(
        [
            [
                verify.relative_error([got], [want], [scale])
                for got, want, scale in zip(outputs, answers, scales, strict=True)
            ]
            for outputs, answers in zip(given, wanted, strict=True)
        ]
    )
    for row, outputs, answers in zip(errors, given, wanted, strict=True):
        for number in exact:
            if verify.differing(outputs[number], answers[number]):
                row[number] = math.inf
    return errors
