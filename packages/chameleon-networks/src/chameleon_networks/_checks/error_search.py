"""Finds the operator of a network at which errors begin, by compiling parts of the network."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.api import words
from chameleon_core.plugin_api import Arrays
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import first_line

from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.repacking import Repacking
from chameleon_networks._evaluation import verify
from chameleon_networks._evaluation.processes import NetworkProcess, delivered_process
from chameleon_networks._graph.cancellations import with_cancellations
from chameleon_networks._graph.counted import CountedAxes
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import (
    COUNTS_ATTRIBUTE,
    bindings_of,
    counted_axes,
    exact_variables,
    relax,
    tvm,
)
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._source_location import SourceLocation

log = structlog.get_logger()

SECONDS = 120.0
"""Limit for the search after a failed verification, which may compile a large network often."""


@attrs.frozen(eq=False)
class ErrorSearch:
    """Compares parts of a compiled network with the values that its framework computes.

    Attributes:
        kernels: The tuned kernels that the network is compiled with.
        repackings: How packed weights are made of those of other kernels, by their digests.
        seconds: Time after which no further part is compiled.
    """

    network: ImportedNetwork
    layout: str
    kernels: Kernels
    target: str
    threads: int
    repackings: Mapping[bytes, Repacking] = attrs.field(factory=dict, kw_only=True)
    seconds: float = attrs.field(default=float("inf"), kw_only=True)

    def cause(self, inputs: Arrays, output: int, tolerance: float) -> str:
        """A sentence that names the operator at which the errors of an output begin.

        It is empty if no part of the network is wrong.
        """
        graph = _Places.of(self.network, output)
        ends = time.monotonic() + self.seconds
        kernels: dict[Any, frozenset[str]] = {}
        problems: dict[Any, str | None] = {}

        def fails(variable: Any) -> bool:
            if variable not in problems:
                if time.monotonic() > ends:
                    raise TimeoutError("the search for the operator takes too long")
                location = graph.locations[variable]
                [[wanted]] = self.network.values([location.output], [inputs])
                kernels[variable], got = self._part(graph.numbers[variable], inputs)
                check = verify.compare_outputs(got, [wanted], tolerance=tolerance)
                error = check.max_relative_error
                log.info("part_compared", operator=location.sentence, error=error)
                problems[variable] = check.problem
                if variable in graph.exact and (count := verify.differing(got[0], wanted)):
                    problems[variable] = (
                        f"it has {words.counted(count, 'wrong integer')} of {wanted.size}"
                    )
            return problems[variable] is not None

        def begins(variable: Any) -> Any:
            """The first wrong variable that a wrong variable depends on, by bisection."""
            before = graph.before(variable)
            first = bisect.bisect_left(before, True, key=fails)
            if first < len(before):
                variable = before[first]
            # On another branch, an operator may fail although later ones in the order are right.
            failing = next(filter(fails, graph.parents(variable)), None)
            return variable if failing is None else begins(failing)

        if graph.last is None or not fails(graph.last):
            return ""
        first = begins(graph.last)
        earlier = frozenset[str]().union(*(kernels[one] for one in graph.parents(first)))
        new = ", ".join(sorted(kernels[first] - earlier))
        sentence = f"errors begin at {graph.locations[first].sentence}: {problems[first]}"
        return f"{sentence}; it has the kernel of {new}" if new else sentence

    def clause(self, expected: verify.Expected) -> str:
        """The cause of a failed verification, to append to a message; empty if it is unknown."""
        if expected.wrong is None:
            return ""
        try:
            found = self.cause(*expected.wrong, expected.tolerance)
        except Exception as error:  # noqa: BLE001 - only a better reason is lost
            log.info("no_cause_found", problem=first_line(error))
            return ""
        return found and f"; {found}"

    def _part(self, number: int, inputs: Arrays) -> tuple[frozenset[str], Arrays]:
        """Compile and run the network up to a binding: its tuned kernels, and its outputs."""
        with self.running(_up_to(self.network.imported, number)) as (process, kernels):
            return kernels, process.outputs(inputs)

    @contextlib.contextmanager
    def running(self, part: Any) -> Iterator[tuple[NetworkProcess, frozenset[str]]]:
        """Compile and run a part of the network, or another form of it; with its tuned kernels."""
        module = prepare_module(part, self.layout)
        fusions = with_cancellations(find_fusions(module), self.network.cancellations)
        with warnings_once():
            built = compile_network(module, fusions, self.kernels, self.target)
        manifest = manifest_of(module, fusions, self.kernels, self.target, self.threads)
        with temporary_folder() as folder:
            executable = attrs.evolve(built.executable, repackings=self.repackings)
            write_artifact(Path(folder), executable, {**manifest, **built.facts})
            with delivered_process("a part", Path(folder), threads=self.threads) as process:
                yield process, frozenset(task["name"] for task in manifest["tasks"])


@attrs.frozen(kw_only=True, eq=False)
class _Places:
    """The variables of an imported network that an output depends on.

    Attributes:
        numbers: The number of the binding of each variable.
        reads: The variables that each variable reads.
        locations: The source locations of the variables whose values the framework can compute.
        last: The variable of ``locations`` that is nearest to the output, or None.
        exact: The variables with integers that no rounding changes.
    """

    numbers: Mapping[Any, int]
    reads: Mapping[Any, Sequence[Any]]
    locations: Mapping[Any, SourceLocation]
    last: Any
    exact: Collection[Any]

    @classmethod
    def of(cls, network: ImportedNetwork, output: int) -> _Places:
        """Find the variables of a network's graph that one of its outputs depends on."""
        main, known = network.imported["main"], network.graph.locations
        exact = exact_variables(main) if network.exact_outputs else set()
        counted = CountedAxes.in_module(network.imported) if counted_axes(main) else None
        bindings = {binding.var: binding.value for binding in bindings_of(main)}
        result = main.body.body
        result = bindings.get(result, result)
        result = result.fields[output] if isinstance(result, relax.Tuple) else main.body.body
        locations = {
            variable: known[variable.name]
            for variable in bindings
            if variable.name in known
            and known[variable.name].output
            and isinstance(variable.ty, relax.TensorType)
            and (variable in exact or str(variable.ty.dtype).startswith("float"))
            # The framework's value may have another size.
            and not (counted and counted.of(variable))
        }
        reads = {var: relax.analysis.free_vars(value) for var, value in bindings.items()}
        numbers = {variable: number for number, variable in enumerate(bindings)}
        places = cls(numbers=numbers, reads=reads, locations=locations, last=None, exact=exact)
        nearest = [result] if result in locations else places.parents(result)
        return attrs.evolve(places, last=nearest[-1] if nearest else None)

    def parents(self, variable: Any) -> list[Any]:
        """The nearest variables before one that a framework can compute, in graph order."""
        return self._located(variable, nearest=True)

    def before(self, variable: Any) -> list[Any]:
        """All variables with a source location that a variable depends on, in graph order."""
        return self._located(variable, nearest=False)

    def _located(self, variable: Any, *, nearest: bool) -> list[Any]:
        found: set[Any] = set()
        left = list(self.reads.get(variable, ()))
        while left:
            read = left.pop()
            if read not in found:
                found.add(read)
                if not (nearest and read in self.locations):
                    left.extend(self.reads.get(read, ()))
        return sorted(found & self.locations.keys(), key=self.numbers.__getitem__)


def _up_to(module: Any, number: int) -> Any:
    """A network whose only output is the value of one binding of another network."""
    main = module["main"]
    bindings = list(itertools.islice(bindings_of(main), number + 1))
    return with_result(module, main.params, bindings, bindings[-1].var)


def with_result(module: Any, inputs: Sequence[Any], bindings: Sequence[Any], value: Any) -> Any:
    """A network with other inputs, bindings and outputs; ``value`` is a variable or a tuple."""
    main = module["main"]
    kind = value.ty
    if isinstance(value, relax.Tuple):
        kind = relax.TupleType([variable.ty for variable in value.fields])
    result = relax.Var("result", kind)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(result, value)])
    function = relax.Function(inputs, relax.SeqExpr([block], result), kind, attrs=main.attrs)
    function = function.without_attr(COUNTS_ATTRIBUTE)
    made = tvm.IRModule({**dict(module.functions_items()), module.get_global_var("main"): function})
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(made))
