"""Judges a network whose outputs are wrong once more, because rounding may be the only cause.

Rounding decides which of two nearly equal scores is the larger one. A network may therefore choose
other positions than its framework, and its later outputs then differ, although it is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays
from chameleon_tvm.api import first_line
from numpy.typing import NDArray

from chameleon_networks._checks.error_search import ErrorSearch, with_others, with_result
from chameleon_networks._evaluation.processes import NetworkProcess
from chameleon_networks._evaluation.verify import (
    Expected,
    OutputCheck,
    Run,
    compare_outputs,
    magnitudes,
)
from chameleon_networks._graph.relax_utils import (
    CHOICES,
    COUNTS_ATTRIBUTE,
    bindings_of,
    counted_axes,
    is_counted,
    operator_name,
    relax,
    tvm,
    values_of,
)
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()


_ROUNDINGS = 4 * float(np.finfo(np.float32).eps)
"""Difference of two scores, over the largest one, by which a choice may differ in any case."""


@attrs.frozen(kw_only=True, eq=False)
class _Choice:
    """A variable of a graph with positions of the largest or smallest scores.

    Attributes:
        positions: The variable.
        scores: The variable with the scores.
        axis: The axis along which scores are compared. None if all of them are.
        outputs: The names of ``positions`` and ``scores`` in the framework; the number of an input
            of the network if that has the scores.
    """

    positions: Any
    scores: Any
    axis: int | None
    outputs: tuple[str, str | int]

    def chosen(self, scores: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
        """The scores at some positions."""
        if self.axis is None:
            scores, positions = scores.reshape(-1), positions.reshape(-1)
        elif positions.ndim < scores.ndim:
            positions = np.expand_dims(positions, self.axis)
        axis = self.axis or 0
        found: NDArray[Any] = np.take_along_axis(scores, positions.astype(np.int64), axis)
        return found


@attrs.define(eq=False)
class _WithChoices:
    """A function with the outputs that ``network_with_choices`` describes.

    Attributes:
        process: Runs the network whose last inputs are its choices.
        ours: The network.
        changed: The most positions in one inference that differ from the framework's.
    """

    process: NetworkProcess
    network: ImportedNetwork
    choices: Sequence[_Choice]
    ours: Run
    tolerance: float
    changed: int = attrs.field(default=0, init=False)

    def __call__(self, inputs: Arrays) -> Arrays:
        got = self.ours(inputs)
        try:
            theirs, expected = self._framework_values(inputs)
        except Exception as error:  # noqa: BLE001 - of any class, by the user's code
            log.info("choices_not_compared", problem=first_line(error))
            return got
        outputs, own, scores = self._computed(inputs, theirs)
        facts = zip(self.choices, own, theirs, scores, expected, strict=True)
        if not all(_is_tied(*fact, tolerance=self.tolerance) for fact in facts):
            return got
        again = outputs
        for _ in self.choices:  # a later choice may depend on an earlier one
            earlier = own
            again, own, _ = self._computed(inputs, earlier)
            if compare_outputs(own, earlier, tolerance=0.0).problem is None:
                break
        if compare_outputs(again, got, tolerance=self.tolerance).problem is not None:
            return got
        changed = sum(int((a != b).sum()) for a, b in zip(own, theirs, strict=True))
        self.changed = max(self.changed, changed)
        return outputs

    def _computed(self, inputs: Arrays, positions: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """The outputs for some choices, the network's own choices, and their scores."""
        got = self.process.outputs([*inputs, *positions])
        count = len(got) - 2 * len(self.choices)
        return got[:count], got[count::2], got[count + 1 :: 2]

    def _framework_values(self, inputs: Arrays) -> tuple[Arrays, Arrays]:
        """The choices of the framework, and their scores."""
        names = [name for choice in self.choices for name in choice.outputs]
        [shown] = self.network.values([name for name in names if isinstance(name, str)], [inputs])
        rest = iter(shown)
        values = [next(rest) if isinstance(name, str) else inputs[name] for name in names]
        kinds = [str(choice.positions.ty.dtype) for choice in self.choices]
        positions = [x.astype(kind) for x, kind in zip(values[::2], kinds, strict=True)]
        return positions, values[1::2]


@attrs.define(eq=False)
class _WithNumbers:
    """A function with the outputs of a network that chooses elements by the framework's numbers.

    Rounding decides whether a number exceeds a limit, too, so that the framework may choose more or
    fewer elements.

    Attributes:
        process: Runs the network whose last inputs are these numbers, and which also returns its
            own ones.
        names: The names of the numbers in the framework.
        ours: The network as it is delivered.
        changed: Whether the framework chose other elements: 1 or 0.
    """

    process: NetworkProcess
    network: ImportedNetwork
    names: Sequence[str]
    ours: Run
    tolerance: float
    changed: int = attrs.field(default=0, init=False)

    def __call__(self, inputs: Arrays) -> Arrays:
        got = self.ours(inputs)
        try:
            [theirs] = self.network.values(self.names, [inputs])
        except Exception as error:  # noqa: BLE001 - of any class, by the user's code
            log.info("choices_not_compared", problem=first_line(error))
            return got
        outputs, own = self._computed(inputs, theirs)
        if compare_outputs(own, theirs, tolerance=self.tolerance).problem is not None:
            return got
        again, _ = self._computed(inputs, own)
        if compare_outputs(again, got, tolerance=self.tolerance).problem is not None:
            return got
        if compare_outputs(outputs, got, tolerance=self.tolerance).problem is not None:
            self.changed = 1
        return outputs

    def _computed(self, inputs: Arrays, numbers: Arrays) -> tuple[Arrays, Arrays]:
        """The outputs for some numbers, and the network's own numbers."""
        got = self.process.outputs([*inputs, *numbers])
        count = len(got) - len(self.names)
        return got[:count], got[count:]


@contextlib.contextmanager
def network_with_choices(search: ErrorSearch, ours: Run, tolerance: float) -> Iterator[Run | None]:
    """Compute a network's outputs for the framework's choices, if these are as good as its own.

    The network is compiled once more, and takes its choices as inputs. If it gets its own choices,
    its outputs must be those of the network. Both choices must have the same scores, except for
    differences that the scores themselves have. Otherwise the outputs are the network's.

    Args:
        search: The facts with which the network is compiled.
        ours: The network.
        tolerance: The largest accepted error of scores and outputs.

    Yields:
        A function of inputs. None if the network makes no choices that the framework shows.
    """
    network = search.network
    numbers = _numbers_of_choices(network) if counted_axes(network.imported["main"]) else {}
    choices = [] if network.state or numbers else _choices(network)
    with contextlib.ExitStack() as stack:
        run: _WithChoices | _WithNumbers | None = None
        try:
            if numbers:
                module = _with_numbers(network.imported, list(numbers))
                process, _ = stack.enter_context(search.running(module))
                run = _WithNumbers(process, network, list(numbers.values()), ours, tolerance)
            elif choices:
                module = _with_inputs(network.imported, choices)
                process, _ = stack.enter_context(search.running(module))
                run = _WithChoices(process, network, choices, ours, tolerance)
        # TVM raises errors of many classes.
        except Exception as error:  # noqa: BLE001 - only a better verdict is lost
            log.info("choices_not_compared", problem=first_line(error))
        yield run
        if run is not None and run.changed:
            reason = "their scores are equal but for rounding, so outputs are compared for these"
            log.warning("framework_chooses_other_positions", count=run.changed, reason=reason)


def second_verdict(
    search: ErrorSearch, expected: Expected, ours: Run, verdict: OutputCheck
) -> OutputCheck:
    """Judge a network with wrong outputs once more: with the framework's choices, or by its parts.

    Args:
        search: The facts with which the network is compiled.
        expected: The framework's outputs.
        ours: The network.
        verdict: The result of ``expected`` for the network's outputs.

    Returns:
        A verdict without a problem, or ``verdict``.
    """
    with network_with_choices(search, ours, expected.tolerance) as run:
        own = verdict if run is None else expected.verdict(run)
    return search.in_parts(expected, ours, verdict) if own.problem is not None else own


def _is_tied(
    choice: _Choice,
    own: NDArray[Any],
    theirs: NDArray[Any],
    scores: NDArray[Any],
    expected: NDArray[Any],
    *,
    tolerance: float,
) -> bool:
    """Whether two choices differ no more than the scores do, which must be right."""
    if compare_outputs([scores], [expected], tolerance=tolerance).problem is not None:
        return False
    other = own != theirs
    finite = np.isfinite(scores) & np.isfinite(expected)
    apart = float(np.abs(scores[finite] - expected[finite]).max(initial=0.0))
    [scale] = magnitudes([[expected]])
    pair = [choice.chosen(scores, one) for one in (own, theirs)]
    ours, others = (array[other.reshape(array.shape)] for array in pair)
    equal = (ours == others) | (np.isnan(ours) & np.isnan(others))
    with np.errstate(invalid="ignore"):
        near = np.abs(ours - others) <= max(2 * apart, _ROUNDINGS * scale)
    return bool((equal | near).all())


def _root(values: Mapping[Any, Any], variable: Any) -> Any:
    """The variable that another one stands for."""
    value = values.get(variable)
    if isinstance(value, relax.TupleGetItem):
        parts = values.get(value.tuple_value)
        if isinstance(parts, relax.Tuple):
            return _root(values, parts.fields[value.index])
    return _root(values, value) if isinstance(value, relax.Var) else variable


def _names_in_framework(network: ImportedNetwork) -> dict[Any, str]:
    """The variables of a graph that the framework computes too, with their names there."""
    values, locations = values_of(network.imported["main"]), network.graph.locations
    return {
        _root(values, variable): locations[variable.name].output
        for variable in values
        if variable.name in locations and isinstance(variable.ty, relax.TensorType)
    }


def _numbers_of_choices(network: ImportedNetwork) -> dict[Any, str]:
    """The floats by which a graph chooses elements, with their names in the framework."""
    values, names = values_of(network.imported["main"]), _names_in_framework(network)
    left = [variable for variable, value in values.items() if is_counted(value)]
    found: dict[Any, str] = {}
    seen: set[Any] = set()
    while left:
        for read in relax.analysis.free_vars(values[left.pop()]):
            variable = _root(values, read)
            if variable in seen or variable not in values:
                continue
            seen.add(variable)
            is_tensor = isinstance(variable.ty, relax.TensorType)
            is_float = is_tensor and str(variable.ty.dtype).startswith("float")
            if is_float and names.get(variable):
                found[variable] = names[variable]
            else:
                left.append(variable)
    return found


def _with_numbers(module: Any, numbers: Sequence[Any]) -> Any:
    """A network whose last inputs replace some numbers; its own ones are outputs before counts."""
    main = module["main"]
    axes = counted_axes(main)
    inputs = [relax.Var(f"number{place}", one.ty) for place, one in enumerate(numbers)]
    bindings, outputs = _fed(main, dict(zip(numbers, inputs, strict=True)))
    first = len(outputs) - len(axes)
    value = relax.Tuple([*outputs[:first], *numbers, *outputs[first:]])
    made = with_result(module, [*main.params, *inputs], bindings, value)
    function = made["main"].with_attr(COUNTS_ATTRIBUTE, axes)
    return tvm.IRModule({**dict(made.functions_items()), made.get_global_var("main"): function})


def _fed(main: Any, given: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
    """The bindings and outputs of a function in which other variables replace some."""
    bindings = [
        relax.VarBinding(binding.var, with_others(binding.value, given))
        for binding in bindings_of(main)
    ]
    result = with_others(main.body.body, given)
    values = {binding.var: binding.value for binding in bindings}
    whole = values.get(result, result)
    return bindings, list(whole.fields) if isinstance(whole, relax.Tuple) else [result]


def _choices(network: ImportedNetwork) -> list[_Choice]:
    """The choices of a graph among numbers that the framework can compute as well."""
    main = network.imported["main"]
    values, names = values_of(main), _names_in_framework(network)
    root = partial(_root, values)
    scores_of = {variable: number for number, variable in enumerate(main.params)} | names
    found = []
    for variable, value in values.items():
        call = value
        if isinstance(value, relax.TupleGetItem) and value.index == 1:
            call = values.get(value.tuple_value)
        if operator_name(call) != "relax.topk" and operator_name(value) not in CHOICES - {
            "relax.topk"
        }:
            continue
        scores = call.args[0]
        place, source = names.get(variable), scores_of.get(root(scores))
        if place and source not in {None, ""} and str(scores.ty.dtype).startswith("float"):
            axis = None if call.attrs.axis is None else int(call.attrs.axis)
            outputs = place, source
            found.append(_Choice(positions=variable, scores=scores, axis=axis, outputs=outputs))
    return found


def _with_inputs(module: Any, choices: Sequence[_Choice]) -> Any:
    """A network whose last inputs are its choices; its own choices and scores are outputs."""
    main = module["main"]
    inputs = [relax.Var(f"choice{i}", one.positions.ty) for i, one in enumerate(choices)]
    given = {one.positions: own for one, own in zip(choices, inputs, strict=True)}
    bindings, outputs = _fed(main, given)
    outputs += [variable for one in choices for variable in (one.positions, one.scores)]
    return with_result(module, [*main.params, *inputs], bindings, relax.Tuple(outputs))
