"""Inputs on which compiled programs go wrong although they are right for random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays
from chameleon_tvm.api import first_line
from numpy.typing import NDArray

from chameleon_networks._evaluation.verify import Run, SpecialInputs
from chameleon_networks._frameworks.precision import rounded
from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import bindings_of, operator_name, relax, tvm
from chameleon_networks._importers.imported_network import ImportedNetwork

log = structlog.get_logger()

_LARGE_MEAN = 1000.0
"""Mean of normally distributed inputs: where E[x²] - E[x]² loses six of seven digits."""

_NORMAL = (-np.inf, np.inf)
"""Limits of inputs that are normally distributed."""

_EXTREMES = (0.0, 1.0, -1.0, 1e-3, -1e3, 1e3, 1e-30, -1e-3)
"""Numbers that are repeated over an input, from tiny to large ones, of both signs."""

_NOT_FINITE = (np.nan, np.inf, -np.inf)
_PERIOD = 7
"""Every number of this many is replaced by NaN or an infinity, one after the other."""

_DATA = frozenset(
    f"relax.{name}"
    for name in (
        *("add", "subtract", "multiply", "negative", "abs", "sign", "maximum", "minimum", "clip"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "where", "astype"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("reshape", "permute_dims", "expand_dims", "squeeze", "flatten", "concat", "flip"),
        *("broadcast_to", "repeat", "tile", "sum", "max", "min"),
    )
)
"""Operators for whose integer arguments every number is admissible."""

_DIVISIONS = frozenset(f"relax.{name}" for name in ("divide", "floor_divide", "floor_mod", "mod"))


def special_inputs(network: ImportedNetwork) -> list[SpecialInputs]:
    """The example, a large mean, a constant, extremes, NaN with infinities, and all integers."""
    drawn = network.samples(np.random.default_rng(0))
    free = [place for place, ranged in enumerate(network.float_ranges) if ranged is not None]
    made = list(_float_inputs(network, drawn, free)) if free else []
    names, bounded = network.input_names(), network.bounded_inputs
    data = integer_data(network.imported["main"])
    integers = {place for place in data if names[place] not in bounded}
    if integers:
        rng = np.random.default_rng(0)
        inputs = [_all_integers(x, rng) if i in integers else x for i, x in enumerate(drawn)]
        made.append(SpecialInputs(label="integers over their whole range", inputs=inputs))
    if network.half is not None:
        kind = network.half
        made = [attrs.evolve(one, inputs=rounded(one.inputs, kind)) for one in made]
    if network.example_inputs is not None:
        made.insert(0, SpecialInputs(label="the example", inputs=list(network.example_inputs)))
    return [attrs.evolve(one, exact=network.exact_outputs) for one in made]


def answered(run: Run, special: Sequence[SpecialInputs]) -> list[Arrays | None]:
    """The outputs of a framework for special inputs; None for inputs that it refuses."""
    outputs: list[Arrays | None] = []
    for one in special:
        try:
            outputs.append(run([array.copy() for array in one.inputs]))
        except Exception as error:  # noqa: BLE001 - of any class, by the user's code
            log.debug("inputs_refused", inputs=one.label, problem=first_line(error))
            outputs.append(None)
    return outputs


def _float_inputs(
    network: ImportedNetwork, drawn: Arrays, places: Sequence[int]
) -> Iterator[SpecialInputs]:
    """Inputs whose arrays of free floating-point numbers are replaced."""
    ranges = network.float_ranges

    def replaced(change: Callable[[NDArray[Any], tuple[float, float]], NDArray[Any]]) -> Arrays:
        return [
            change(x, limits).astype(x.dtype)
            if i in places and (limits := ranges[i]) is not None
            else x
            for i, x in enumerate(drawn)
        ]

    if any(ranges[place] == _NORMAL for place in places):
        shifted = replaced(lambda x, limits: x + _LARGE_MEAN if limits == _NORMAL else x)
        yield SpecialInputs(label=f"a mean of {_LARGE_MEAN:g}", inputs=shifted)
    constant = replaced(lambda x, limits: np.full_like(x, np.clip(0.5, *limits)))
    yield SpecialInputs(label="a constant", inputs=constant)
    if casts_to_integers(network.imported["main"]):
        return  # languages leave open which integer a large number or NaN becomes
    extremes = replaced(lambda x, limits: np.resize(np.clip(_EXTREMES, *limits), x.shape))
    yield SpecialInputs(label="a tile of extremes", inputs=extremes)
    if not network.quantized:
        marked = replaced(lambda x, _: _with_nan(x))
        # Maxima of windows with NaN are NaN here and in torch, but not in onnxruntime.
        pools = any(
            operator_name(binding.value).startswith("relax.nn.max_pool")
            for binding in bindings_of(network.imported["main"])
        )
        yield SpecialInputs(
            label="NaN and infinities", inputs=marked, is_finite=False, may_spread=pools
        )


def _with_nan(array: NDArray[Any]) -> NDArray[Any]:
    """Replace some numbers of an array by NaN and infinities."""
    marked = array.copy().reshape(-1)
    places = marked[_PERIOD - 1 :: _PERIOD]
    places[:] = np.resize(np.array(_NOT_FINITE), places.shape)
    return marked.reshape(array.shape)


def _all_integers(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Random integers of the whole range of a dtype, with its ends among them."""
    limits = np.iinfo(array.dtype)
    least, most = int(limits.min), int(limits.max)
    numbers = rng.integers(least, most, array.shape, array.dtype, endpoint=True).reshape(-1)
    ends = np.array([least, most, 0, most // 3 + 1], array.dtype)[: numbers.size]
    numbers[: ends.size] = ends
    return numbers.reshape(array.shape)


def casts_to_integers(function: Any) -> bool:
    """Whether a function of Relax converts floating-point numbers to integers."""
    return any(
        operator_name(binding.value) == "relax.astype"
        and _is_integer(binding.var)
        and not _is_integer(binding.value.args[0])
        and not str(binding.value.args[0].ty.dtype).startswith("bool")
        for binding in bindings_of(function)
    )


def integer_data(function: Any) -> set[int]:
    """The numbers of the integer inputs that are data: neither indices nor lengths nor divisors."""
    bindings = [(binding.var, binding.value) for binding in bindings_of(function)]
    return {
        number
        for number, parameter in enumerate(function.params)
        if _is_integer(parameter) and _is_data(parameter, bindings)
    }


def _is_data(parameter: Any, bindings: Sequence[tuple[Any, Any]]) -> bool:
    """Whether every operator that reads an input as an integer accepts any integer."""
    integers = {parameter}
    for variable, value in bindings:
        read = integers.intersection(relax.analysis.free_vars(value))
        if not read:
            continue
        name = operator_name(value)
        if name in _DIVISIONS:
            divisor = value.args[1]
            constant = isinstance(divisor, tvm.ir.GenericConst)
            if not constant or (array_of(divisor) <= 0).any():  # -1 is no divisor of the least one
                return False
        elif name not in _DATA and not isinstance(value, relax.Tuple | relax.Var):
            return False
        if isinstance(value, relax.Tuple) or _is_integer(variable):
            integers.add(variable)
    return True


def _is_integer(value: Any) -> bool:
    kind = value.ty
    return isinstance(kind, relax.TensorType) and str(kind.dtype).startswith(("int", "uint"))
