"""Finds out whether the kernels of a network may end at the size of a call.

A call whose inputs are smaller than those of a network computes its first rows alone. The loops of
kernels end after them, and no kernel may read a later row. Two networks that differ in one size
show which axes of their arrays have this size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays
from chameleon_tvm.api import array_type, open_axes, structural_map, tirx
from numpy.typing import NDArray
from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_mutate, structural_visit, structural_walk

from chameleon_networks._compile.network_pipeline import PIPELINE
from chameleon_networks._compile.open_layouts import NotOpenError, OpenSizes, Pair
from chameleon_networks._compile.sequence.calls import Call, CallSequence, Tensor
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import tvm

Function = Any
Axes = tuple[int, ...]
_SPATIAL = 0
"""The kind of TVM's block variables that no reduction is over."""


_LOAD, _NUMBER = tvm.ir.expr.TensorLoad, (tirx.IntImm, tirx.FloatImm)
"""Kinds of expressions: elements of arrays, and numbers."""

_ROUNDING = 1e-6
"""The relative error of a float32 number, beside that of 1."""


_LATER = (np.nan, 1e30, -1e30, 1.0)
"""Numbers after the part of a call."""


@attrs.frozen(kw_only=True, eq=False)
class OpenFunction:
    """A function that is no tuned kernel, and computes a part of its open axes if a call says so.

    Attributes:
        function: The function. Sums over an open axis add nothing after the part.
        sizes: The open axes of each parameter, with their extents.
    """

    function: Function
    sizes: OpenSizes

    @property
    def axes(self) -> list[Axes]:
        """The open axes of each parameter."""
        return [tuple(own) for own in self.sizes]

    @property
    def by_extent(self) -> dict[int, open_axes.OpenAxis]:
        """The open axes of one part, by the extents for which the function is compiled.

        Extents that mean different axes are left out.
        """
        count = Counter(axis.extent for axis in self.different)
        return {a.extent: a for a in self.different if a.repeats == count[a.extent] == 1}

    @property
    def different(self) -> set[open_axes.OpenAxis]:
        """The different open axes."""
        return {axis for own in self.sizes for axis in own.values()}


@attrs.frozen(kw_only=True, eq=False)
class OtherCall:
    """A call of a function that is no tuned kernel, in the network with the other size.

    Attributes:
        function: The function.
        sizes: The open axes of the call's tensors.
    """

    function: Function
    sizes: OpenSizes


@attrs.frozen(kw_only=True, eq=False)
class OpenDimension:
    """A size of a network's inputs that a call may make smaller.

    Attributes:
        extent: The size for which the network is compiled.
        axes: The extents that differ between the two networks, and how each follows from the size.
        operators: The open axes of each fusion group's operator, by the group's last variable.
        others: The calls of functions that are no tuned kernels in the other network, in order.
        needed: Whether outputs are wrong if calls compute more than their part.
    """

    extent: int
    axes: Mapping[Pair, open_axes.OpenAxis]
    operators: Mapping[Any, open_axes.OpenAxes]
    others: Sequence[OtherCall]
    needed: bool = False

    def axes_of(self, fusion: FusionGroup) -> open_axes.OpenAxes:
        """The open axes of a fusion group's operator."""
        return self.operators[fusion.last]

    def functions(
        self, sequence: CallSequence, functions: Mapping[str, Function], tuned: frozenset[str]
    ) -> dict[str, OpenFunction]:
        """The functions with open axes that are no tuned kernels, by name.

        Raises:
            NotOpenError: A function mixes the elements of an open axis.
        """
        calls = [call for call in sequence.calls if call.kernel not in tuned]
        if len(calls) != len(self.others):
            raise NotOpenError("it has other kernels for another size")
        known: dict[str, OpenFunction | None] = {}
        for call, other in zip(calls, self.others, strict=True):
            if call.kernel not in known:
                known[call.kernel] = self.opened(functions[call.kernel], call, other)
            opened = known[call.kernel]
            if list(other.sizes) != ([{}] * len(other.sizes) if opened is None else opened.sizes):
                raise NotOpenError(f"{call.kernel} is called with open axes and without")
        return {name: opened for name, opened in known.items() if opened is not None}

    def opened(self, function: Function, call: Call, other: OtherCall) -> OpenFunction | None:
        """A function with open axes or numbers that follow from them; None for any other.

        Raises:
            NotOpenError: The function mixes the elements of an open axis.
        """
        scaled = _with_called_numbers(function, other.function, self.axes)
        opened = OpenFunction(function=scaled, sizes=other.sizes)
        axes = opened.different
        if not axes:
            return None if scaled.same_as(function) else opened
        by_buffer = dict(zip(function.params, opened.axes, strict=True))
        reason = NotOpenError(f"{call.kernel} computes elements from others of an open axis")
        extents, steps = ({getattr(a, name) for a in axes} for name in ("extent", "steps"))
        if len(extents) == len(axes) and len(steps) == 1:
            try:
                rows = _Rows(scaled, call, by_buffer, opened.by_extent).checked()
                return attrs.evolve(opened, function=rows)
            except NotOpenError as error:
                reason = error
        if _has_computed_indices(scaled) or _reads_later_elements(
            scaled, call, other.sizes, self.extent
        ):
            raise reason
        return opened


def _has_computed_indices(function: Function) -> bool:
    """Whether a function reads elements whose numbers are elements of other arrays."""
    return any(
        _nodes(index, tvm.ir.expr.TensorLoad)
        for load in _nodes(function.body, tvm.ir.expr.TensorLoad)
        for index in load.indices
    )


def _with_called_numbers(
    function: Function, other: Function, axes: Mapping[Pair, open_axes.OpenAxis]
) -> Function:
    """A function in which numbers that follow from an open size follow from the call's size.

    A mean divides by such a number. Numbers in indices are left as they are.

    Args:
        function: The function.
        other: The same function of the network with another size.
        axes: The extents that differ between the two networks.
    """
    mine, theirs = map(_numbers_of, (function, other))
    if len(mine) != len(theirs):
        # Rows that are unrolled have their numbers more often, and none that follows from the size.
        if _different_numbers(mine) - _different_numbers(theirs):
            raise NotOpenError("a function has other code for another size")
        return function
    replaced: dict[tuple[str, float], Any] = {}
    for number, another in zip(mine, theirs, strict=True):
        own = str(number.ty), number.value
        value = None if number.value == another.value else _called_number(number, another, axes)
        if replaced.setdefault(own, value) is not value and not structural_equal(
            replaced[own], value
        ):
            raise NotOpenError(f"a function has the number {number.value} twice")
    if not any(value is not None for value in replaced.values()):
        return function

    def called(number: Any, _: Any) -> Any:
        value = replaced.get((str(number.ty), number.value))
        return number if value is None else value

    kinds = (_LOAD, lambda load, _: load), (_NUMBER, called)

    def stored(store: Any) -> Any:
        value = structural_mutate(store.value, kinds)
        return tirx.BufferStore(store.buffer, value, store.indices)

    return function.with_body(structural_map(function.body, (tirx.BufferStore, stored)))


def _numbers_of(function: Function) -> list[Any]:
    """The numbers in what a function stores, without those in indices."""
    numbers: list[Any] = []
    kinds = (_LOAD, lambda *_: None), (_NUMBER, lambda number, _: numbers.append(number))
    for store in _nodes(function.body, tirx.BufferStore):
        structural_visit(store.value, kinds)
    return numbers


def _different_numbers(numbers: Sequence[Any]) -> set[tuple[str, float]]:
    """The different numbers other than 0, with their dtypes."""
    return {(str(number.ty), number.value) for number in numbers if number.value}


def _called_number(mine: Any, theirs: Any, axes: Mapping[Pair, open_axes.OpenAxis]) -> Any:
    """The expression of a number that is an open size, close to one, or its inverse."""
    kind, a, b = str(mine.ty), mine.value, theirs.value
    called = [
        (pair, tirx.Cast(kind, axis.of(open_axes.called_extent()))) for pair, axis in axes.items()
    ]
    # Height and width of an image are often equal.
    called += [((own**2, other**2), size * size) for (own, other), size in called]
    for (own, other), size in called:
        if (a, b) == (own, other):
            return size
        if isinstance(a, float) and np.allclose((a * own, b * other), 1.0, atol=_ROUNDING):
            return tirx.FloatImm(kind, 1.0) / size
    for (own, other), size in called:
        if isinstance(a, int) and a - own == b - other:
            return size + (a - own)
    raise NotOpenError(f"a function has the number {a}, and {b} for another size")


@attrs.define(eq=False)
class _Rows:
    """Checks that a function computes each element of an open axis from the same one alone.

    Attributes:
        call: A call of the function.
        axes: The open axes of each buffer.
        sizes: The open axes by their extents.
    """

    function: Function
    call: Call
    axes: dict[Any, Axes]
    sizes: Mapping[int, open_axes.OpenAxis]
    _summed: set[Any] = attrs.field(factory=set)

    def checked(self) -> Function:
        """The function, whose reductions end with the call, or an error."""
        leaves = [
            block
            for block in _nodes(self.function.body, tvm.s_tir.SBlock)
            if not _nodes(block.body, tvm.s_tir.SBlockRealize)
        ]
        for block in leaves:
            self._check(block)
        if sum(map(self._loads, leaves)) < self._loads(self.function.body):
            self._refuse()
        body = structural_map(self.function.body, (_LOAD, self._inside))
        if self._summed:
            body = structural_map(body, (tvm.s_tir.SBlock, self._ended))
        return self.function.with_body(body)

    def _ended(self, block: Any) -> Any:
        """A block whose reduction over an open axis ends with the call."""
        summed = [each for each in block.iter_vars if each.var in self._summed]
        if not summed:
            return block
        parts = []
        for each in summed:
            axis = self.sizes.get(int(each.dom.extent))
            if axis is None:
                self._refuse()
            called = tirx.Cast(str(each.var.ty), axis.of(open_axes.called_extent()))
            parts.append(each.var < called)
        part = tirx.all(*parts)

        def ended(store: Any) -> Any:
            value = store.value
            known = isinstance(value, tirx.Add | tirx.Max | tirx.Min) and block.init is not None
            if not known or not _is_element(value.a, store):
                self._refuse()
            # A reduction begins with the number that changes nothing.
            number = tirx.Select(part, value.b, block.init.value)
            return tirx.BufferStore(store.buffer, type(value)(value.a, number), store.indices)

        body = structural_map(block.body, (tirx.BufferStore, ended))
        fields = block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init
        more = block.alloc_buffers, block.match_buffers, block.annotations
        return tvm.s_tir.SBlock(*fields, *more)

    def _inside(self, load: Any) -> Any:
        """A load that reads no other memory if numbers of elements were not computed by a call."""
        is_read = any(isinstance(load.indices[each], _LOAD) for each in self._axes_of(load))
        if not is_read:
            return load
        indices = [
            tirx.max(tirx.min(index, extent - 1), 0) if isinstance(index, _LOAD) else index
            for index, extent in zip(load.indices, load.source.shape, strict=True)
        ]
        return tirx.BufferLoad(load.source, indices)

    def _axes_of(self, load: Any) -> Axes:
        return self.axes.get(load.source, ())

    def _loads(self, tree: Any) -> int:
        loads = _nodes(tree, tvm.ir.expr.TensorLoad)
        return sum(bool(self._axes_of(load)) for load in loads)

    def _check(self, block: Any) -> None:
        """Check a block without others in it, and find the open axis of what it stores."""
        analyzer = tvm.sym.Analyzer()
        for variable in block.iter_vars:
            analyzer.bind(variable.var, variable.dom)
        spatial = {each.var for each in block.iter_vars if int(each.iter_type) == _SPATIAL}
        opened = self._read(block, analyzer)
        if not opened <= {each.var for each in block.iter_vars}:
            self._refuse()
        self._summed |= opened - spatial
        opened &= spatial
        own = {allocation.buffer for allocation in _nodes(block, tirx.AllocBuffer)}
        for store in _nodes(block, tirx.BufferStore):
            if store.buffer in own:
                continue
            indices = [analyzer.simplify(index) for index in store.indices]
            if opened and store.buffer not in self.axes:
                is_open = [{index} <= opened for index in indices]
                self.axes[store.buffer] = tuple(np.flatnonzero(is_open).tolist())
            stored = [indices[axis] for axis in self.axes.get(store.buffer, ())]
            if not opened <= {*stored} <= spatial or len({*stored}) < len(stored):
                self._refuse()

    def _read(self, block: Any, analyzer: Any) -> set[Any]:
        """The indices along open axes that a block reads, without those of known elements.

        These are the first element, and elements whose number the network has computed. As in a
        network of the call's size, such a number lies in the call's part.
        """
        indices = (
            analyzer.simplify(load.indices[axis])
            for load in _nodes(block, tvm.ir.expr.TensorLoad)
            for axis in self._axes_of(load)
        )
        return {
            index
            for index in indices
            if not isinstance(index, _LOAD) and not self._is_first(index, analyzer)
        }

    def _refuse(self) -> NoReturn:
        raise NotOpenError(f"{self.call.kernel} computes elements from others of an open axis")

    def _is_first(self, index: Any, analyzer: Any) -> bool:
        """Whether an index, which may be in a constant, is that of the first element."""
        arguments = dict(zip(self.function.params, self.call.arguments, strict=True))

        def extreme(load: Any, reduce: Any) -> Any:
            constant = arguments[load.source].storage.constant if load.source in arguments else None
            known = constant is not None and constant.size
            return tirx.IntImm(str(load.ty), int(reduce(constant))) if known else load

        numbers = [
            analyzer.simplify(
                structural_map(index, (tvm.ir.expr.TensorLoad, partial(extreme, reduce=reduce)))
            )
            for reduce in (np.min, np.max)
        ]
        return all(_is_number(number, 0) for number in numbers)


def _is_element(value: Any, store: Any) -> bool:
    """Whether a value is the element that a store writes."""
    return (
        isinstance(value, tvm.ir.expr.TensorLoad)
        and value.source.same_as(store.buffer)
        and all(map(structural_equal, value.indices, store.indices))
    )


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def end_loops(function: Function, opened: OpenFunction) -> Function:
    """End the loops of a scheduled function at the extent of the call.

    A loop ends there if all that it stores is in an element of the open axis for each iteration.
    Other loops run to their ends, and compute rows that nobody reads.
    """
    by_buffer = dict(zip(function.params, opened.axes, strict=False))
    sizes = opened.by_extent
    ended: list[Any] = []

    def visit(loop: Any) -> None:
        is_open = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) in sizes
        if is_open and _stores_elements(loop, by_buffer):
            ended.append(loop.loop_var)

    structural_walk(function.body, (tirx.For, visit), order="pre")

    def shortened(loop: Any) -> Any:
        if not any(loop.loop_var.same_as(variable) for variable in ended):
            return loop
        called = sizes[int(loop.extent)].of(open_axes.called_extent())
        end = tirx.Cast(str(loop.loop_var.ty), called)
        fields = loop.kind, loop.body, loop.thread_binding, loop.annotations
        return tirx.For(loop.loop_var, loop.min, end, *fields)

    if not ended:
        return function
    return function.with_body(structural_map(function.body, (tirx.For, shortened)))


def _stores_elements(loop: Any, axes_of: Mapping[Any, Axes]) -> bool:
    """Whether an iteration of a loop stores the element of its number along open axes."""
    analyzer = tvm.sym.Analyzer()
    for each in _nodes(loop.body, tirx.For):
        analyzer.bind(each.loop_var, tvm.ir.Range.from_min_extent(each.min, each.extent))
    stores: list[list[Any]] = []
    for realize in _nodes(loop.body, tvm.s_tir.SBlockRealize):
        variables = (each.var for each in realize.block.iter_vars)
        values = dict(zip(variables, realize.iter_values, strict=True))
        for store in _nodes(realize.block.body, tirx.BufferStore):
            if store.buffer in axes_of:
                indices = (store.indices[axis] for axis in axes_of[store.buffer])
                chosen = (tirx.Var, _value_in(values))
                stores.append([structural_map(index, chosen) for index in indices])
    return bool(stores) and all(
        any(_is_number(analyzer.simplify(index - loop.loop_var), 0) for index in indices)
        for indices in stores
    )


def _value_in(values: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda variable: values.get(variable, variable)


def _nodes(tree: Any, kind: Any) -> list[Any]:
    nodes: list[Any] = []
    structural_walk(tree, (kind, nodes.append))
    return nodes


def _reads_later_elements(function: Any, call: Call, sizes: OpenSizes, extent: int) -> bool:
    """Whether the outputs of a call depend on elements after its part, as far as can be tried.

    Args:
        function: The function of the call.
        call: The call.
        sizes: The open axes of its arguments.
        extent: The extent for which the function is compiled.
    """
    taking, is_open = open_axes.with_extent(function)
    named = tvm.IRModule({"main": taking.with_attr("global_symbol", "main")})
    main = tvm.compile(named, target="llvm", tir_pipeline=PIPELINE)["main"]
    rng = np.random.default_rng(0)
    inputs = [_drawn(tensor, rng) for tensor in call.reads]
    middle = extent // 2
    parts = {1, 2, 3, middle, middle + 1, extent - 2, extent - 1}
    for part in sorted(parts & {*range(1, extent)}):
        seen = set()
        for later in _LATER:
            arrays = [
                _with_later(array, axes, part, later)
                for array, axes in zip(inputs, sizes, strict=False)
            ]
            outputs = [_zeros(tensor) for tensor in call.writes]
            tensors = [tvm.runtime.tensor(array) for array in (*arrays, *outputs)]
            main(*tensors, *[part] * is_open)
            written = [tensor.numpy() for tensor in tensors[len(arrays) :]]
            seen.add(b"".join(_parts(written, sizes[len(arrays) :], part)))
        if len(seen) > 1:
            return True
    return False


def _drawn(tensor: Tensor, rng: np.random.Generator) -> NDArray[Any]:
    """The value of a constant, or random numbers; integers and truth values are 0 or 1."""
    if tensor.storage.constant is not None:
        return np.ascontiguousarray(tensor.storage.constant).reshape(tensor.shape)
    array = _zeros(tensor)
    is_float = array.dtype.kind not in "iub"
    array[...] = rng.standard_normal(array.shape) if is_float else rng.integers(0, 2, array.shape)
    return array


def _zeros(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = np.zeros(tensor.shape, array_type(tensor.dtype))
    return array


def _with_later(
    array: NDArray[Any], axes: Mapping[int, open_axes.OpenAxis], part: int, later: float
) -> NDArray[Any]:
    """An array with other numbers after the part of a call."""
    if not axes:
        return array
    if array.dtype.kind in "iub":
        result = np.full_like(array, 0 if later < 0 else 1)
    else:
        result = np.full_like(array, later)
    inside = _inside(array, axes, part)
    result[inside] = array[inside]
    return result


def _inside(
    array: NDArray[Any], axes: Mapping[int, open_axes.OpenAxis], part: int
) -> tuple[NDArray[Any], ...]:
    """The indices of the elements of a call's part."""
    kept = []
    for number, extent in enumerate(array.shape):
        indices = np.arange(extent)
        if axis := axes.get(number):
            indices = indices[indices % (extent // axis.repeats) < axis.of(part)]
        kept.append(indices)
    return np.ix_(*kept)


def _parts(outputs: Arrays, sizes: OpenSizes, part: int) -> Iterator[bytes]:
    for output, axes in zip(outputs, sizes, strict=False):
        yield output[_inside(output, axes, part)].tobytes()
