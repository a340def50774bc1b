"""Compiles parts of a network, to find where errors begin or to check each part by itself."""

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
from tvm_ffi.structural import structural_map

from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.repacking import Repacking
from chameleon_networks._evaluation import verify
from chameleon_networks._evaluation.processes import NetworkProcess, delivered_process
from chameleon_networks._graph.cancellations import with_cancellations
from chameleon_networks._graph.counted import CountedAxes
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import FusionGroup
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

    def in_parts(
        self, expected: verify.Expected, ours: verify.Run, verdict: verify.OutputCheck
    ) -> verify.OutputCheck:
        """Judge a network that amplifies the framework's rounding errors by its parts.

        Each part takes the framework's values as inputs. A part that is wrong is split until its
        parts are right, or nothing is left to split.

        Args:
            expected: The framework's outputs. Its ``conditioning`` gets the number of parts.
            ours: The network.
            verdict: The result of ``expected`` for the network's outputs.

        Returns:
            A verdict without a problem if all parts are right, or ``verdict``.
        """
        off = verdict.max_relative_error or 0.0
        try:
            conditioning = expected.conditioning if expected.amplifies else None
            if conditioning is None or conditioning.perturbed:
                return verdict
            if not expected.tolerance < off <= conditioning.largest_tolerance:
                return verdict
            problem = expected.problem_beyond_rounding(ours)
            errors = [] if problem else _Parts(self, expected.samples, expected.answers).errors()
        except Exception as error:  # noqa: BLE001 - only a better verdict is lost
            log.info("parts_not_compared", problem=first_line(error))
            return verdict
        if problem is not None:
            return attrs.evolve(verdict, problem=problem)
        expected.conditioning = attrs.evolve(
            conditioning, parts=len(errors), largest_error=max(errors)
        )
        return attrs.evolve(verdict, problem=None)

    def fusions(self, module: Any) -> Sequence[FusionGroup]:
        """The fusion groups of a prepared module."""
        return with_cancellations(find_fusions(module), self.network.cancellations)

    def tuned_tasks(self, part: Any) -> set[str]:
        """The keys of the tasks whose kernels a part of the network has."""
        groups = self.fusions(prepare_module(part, self.layout))
        return {self.kernels.task_of(fusion).key for fusion in groups} & set(self.kernels.winners)

    def _part(self, number: int, inputs: Arrays) -> tuple[frozenset[str], Arrays]:
        """Compile and run the network up to a binding: its tuned kernels, and its outputs."""
        with self.running(_up_to(self.network.imported, number)) as (process, kernels):
            return kernels, process.outputs(inputs)

    @contextlib.contextmanager
    def running(self, part: Any) -> Iterator[tuple[NetworkProcess, frozenset[str]]]:
        """Compile and run a part of the network, or another form of it; with its tuned kernels."""
        module = prepare_module(part, self.layout)
        fusions = self.fusions(module)
        with warnings_once():
            built = compile_network(module, fusions, self.kernels, self.target)
        manifest = manifest_of(module, fusions, self.kernels, self.target, self.threads)
        with temporary_folder() as folder:
            executable = built.executable
            if attrs.has(type(executable)):  # and not a program of TVM's virtual machine
                executable = attrs.evolve(executable, repackings=self.repackings)
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


_PARTS_SECONDS = 600.0
"""Limit for the comparison of parts, on a busy machine as well, since it decides what is right."""

_MOST_TRIES = 16
"""Number of places that are tried for a cut through a part of a network."""


class _WrongPartError(Exception):
    """A part of a network is wrong although its inputs are the framework's values."""


class _Parts:
    """Runs of bindings of a network, with the framework's values as inputs and outputs."""

    def __init__(
        self, search: ErrorSearch, batches: Sequence[Arrays], answers: Sequence[Arrays]
    ) -> None:
        network = search.network
        self._search, self._batches, self._answers = search, batches, answers
        self._module, self._main = network.imported, network.imported["main"]
        if network.state or COUNTS_ATTRIBUTE in (self._main.attrs or {}):
            raise _WrongPartError("the framework shows neither states nor counts")
        self._bindings = list(bindings_of(self._main))
        self._ends = time.monotonic() + _PARTS_SECONDS
        known, exact = network.graph.locations, exact_variables(self._main)
        self._numbers = dict.fromkeys(self._main.params, -1)
        self._last_use = dict.fromkeys(self._main.params, -1)
        for number, binding in enumerate([*self._bindings, None]):
            value = self._main.body.body if binding is None else binding.value
            read = [one for one in relax.analysis.free_vars(value) if one in self._numbers]
            self._last_use.update(dict.fromkeys(read, number))
            if binding is not None and read:
                self._numbers[binding.var] = number
                self._last_use[binding.var] = number
        self._outputs = {
            variable: known[variable.name].output
            for variable in self._numbers
            if variable.name in known
            and isinstance(variable.ty, relax.TensorType)
            and (variable in exact or str(variable.ty.dtype).startswith("float"))
        }
        self._values: dict[int, list[Arrays]] = {-1: list(batches)}
        self._values[len(self._bindings) - 1] = list(answers)

    def errors(self) -> list[float]:
        """The largest error of each part of the network, all of which are right."""
        return self._halves(-1, len(self._bindings) - 1)

    def _halves(self, first: int, last: int) -> list[float]:
        """The errors of the parts between two bindings, of which the second is included."""
        middle = self._middle(first, last)
        if middle is None:
            [*_, binding] = self._bindings[: last + 1]
            raise _WrongPartError(f"the part that ends at {binding.var.name} is wrong")
        errors: list[float] = []
        for part in ((first, middle), (middle, last)):
            if time.monotonic() > self._ends:
                raise TimeoutError("the comparison of parts takes too long")
            error = self._error(*part)
            errors += [error] if error <= verify.TOLERANCE else self._halves(*part)
        return errors

    def _error(self, first: int, last: int) -> float:
        """The largest error of a part for the framework's values."""
        with self._search.running(self._part(first, last)) as (process, _):
            pairs = zip(self._framework(first), self._framework(last), strict=True)
            error = max(_error_of(process.outputs(x), y) for x, y in pairs)
        log.info("part_compared", bindings=(first + 1, last), error=error)
        return error

    def _middle(self, first: int, last: int) -> int | None:
        """A place in the middle of a part, with few values, at which a cut splits no kernel."""
        center = (first + last) / 2
        places = [at for at in range(first + 1, last) if self._has_values(at)]
        places.sort(key=lambda at: (len(self._live(at)), abs(at - center)))
        tasks = self._tasks(first, last) if places else set()
        for at in places[:_MOST_TRIES]:
            try:
                if self._tasks(first, at) | self._tasks(at, last) >= tasks:
                    return at
            # TVM raises errors of many classes.
            except Exception as error:  # noqa: BLE001 - another place may do
                log.info("part_not_prepared", problem=first_line(error))
        return None

    def _tasks(self, first: int, last: int) -> set[str]:
        """The keys of the tasks whose kernels a part has."""
        return self._search.tuned_tasks(self._part(first, last))

    def _live(self, number: int) -> list[Any]:
        """The variables that exist after a binding and that later ones read."""
        if number < 0:
            return list(self._main.params)
        return [
            variable
            for variable, own in self._numbers.items()
            if own <= number < self._last_use[variable]
        ]

    def _has_values(self, number: int) -> bool:
        """Whether the framework shows all values that later bindings read."""
        live = self._live(number)
        return bool(live) and all(one in self._outputs or self._numbers[one] < 0 for one in live)

    def _framework(self, number: int) -> list[Arrays]:
        """The framework's values of the variables after a binding, for each batch."""
        if number not in self._values:
            live, params = self._live(number), list(self._main.params)
            names = [self._outputs[one] for one in live if one not in params]
            shown = self._search.network.values(names, self._batches)
            self._values[number] = []
            for batch, values in zip(self._batches, shown, strict=True):
                rest = iter(values)
                arrays = [batch[params.index(x)] if x in params else next(rest) for x in live]
                kinds = [str(variable.ty.dtype) for variable in live]
                self._values[number].append(
                    [array.astype(kind) for array, kind in zip(arrays, kinds, strict=True)]
                )
        return self._values[number]

    def _part(self, first: int, last: int) -> Any:
        """The bindings after one up to another as a network."""
        live = self._live(first)
        inputs = [relax.Var(f"given{number}", variable.ty) for number, variable in enumerate(live)]
        given = dict(zip(live, inputs, strict=True))

        bindings = [
            relax.VarBinding(binding.var, with_others(binding.value, given))
            for number, binding in enumerate(self._bindings)
            if first < number <= last or binding.var not in self._numbers
        ]
        is_end = last == len(self._bindings) - 1
        result = self._main.body.body if is_end else relax.Tuple(self._live(last))
        return with_result(self._module, inputs, bindings, with_others(result, given))


def _error_of(got: Arrays, wanted: Arrays) -> float:
    """The largest relative error of some values; infinite if integers differ."""
    pairs = zip(got, wanted, strict=True)
    if any(y.dtype.kind != "f" and verify.differing(x, y) for x, y in pairs):
        return float("inf")
    return verify.relative_error(got, wanted)


def _up_to(module: Any, number: int) -> Any:
    """A network whose only output is the value of one binding of another network."""
    main = module["main"]
    bindings = list(itertools.islice(bindings_of(main), number + 1))
    return with_result(module, main.params, bindings, bindings[-1].var)


def with_others(value: Any, others: Mapping[Any, Any]) -> Any:
    """An expression with other variables in place of some."""
    return structural_map(value, (relax.Var, lambda variable: others.get(variable, variable)))


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
