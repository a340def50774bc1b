"""Which marks are of use: where a neighbour is a heavier kernel, which TVM fuses nothing into."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from chameleon_tvm.quick_tvm import tirx

from chameleon_networks.compile.sequence.accesses import count_lookups, table_axis
from chameleon_networks.compile.sequence.marks import CONCAT, SHUFFLE, mark_of
from chameleon_networks.graph.relaxed import relax, tvm

_PATTERN = "op_pattern"
_INJECTIVE, _FUSIBLE, _OPAQUE = 2, 4, 8
"""``OpPatternKind``: what is at most injective is fused with its like, a product or convolution
with the element-wise operators after it, an opaque function with none."""


def with_useful_marks(module: Any) -> Any:
    """Drop the marks that are of no use, and keep TVM from fusing the functions that stay marked.

    Args:
        module: what ``with_marks`` returned, after ``AnnotateTIROpPattern``.
    """
    neighbours = _Neighbours(module)
    wanted = {kernel.name_hint for kernel in neighbours.worth_a_view()}
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or mark_of(function) is None:
            continue
        if variable.name_hint in wanted:
            module.update_func(variable, function.with_attr(_PATTERN, _OPAQUE))
        else:
            module.update_func(variable, function.without_attr(str(mark_of(function))))
    return module


class _Neighbours:
    """Which kernel makes each value of ``main``, and which ones read it."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._calls: list[tuple[Any, Any]] = []
        self._same: dict[Any, Any] = {}
        """Fields of tuples and reshaped values, by what they are of."""
        self._made: dict[Any, Any] = {}
        """Calls of kernels by what they compute."""
        self._read: dict[Any, list[tuple[Any, int, Any]]] = defaultdict(list)
        """Of each value its readers: the kernel, which of its parameters, and what it computes."""
        body = module["main"].body
        for block in body.blocks:
            for binding in block.bindings:
                self._visit(binding)
        self._returned = {self._root(one) for one in relax.analysis.free_vars(body.body)}
        self._looked_up = set(self._worth_tables())

    def worth_a_view(self) -> Iterator[Any]:
        """Kernels with a mark that a heavier one is next to."""
        for variable, call in self._calls:
            mark = mark_of(self._module[call.args[0]])
            readers = [kernel for kernel, _, _ in self._read[variable]]
            if mark == SHUFFLE:
                if call.args[0].name_hint in self._looked_up:
                    yield call.args[0]
            elif mark == CONCAT:
                parts = [self._root(part) for part in call.args[1].fields]
                moved_anyway = (
                    len(readers) == 1
                    and self._pattern(readers[0]) == _INJECTIVE
                    and self._may_be_fused(readers[0])
                    and variable not in self._returned
                )
                if not moved_anyway and any(map(self._by_heavy, parts)):
                    yield call.args[0]
            elif mark is not None and any(map(self._heavy, readers)):
                yield call.args[0]

    def _worth_tables(self) -> Iterator[str]:
        """Names of shuffles whose readers look up less than a kernel would load and store."""
        shuffles = {
            variable: call
            for variable, call in self._calls
            if mark_of(self._module[call.args[0]]) == SHUFFLE
        }
        while shuffles:
            group = [next(iter(shuffles))]
            gain = 0
            for variable in group:
                size = math.prod(int(extent) for extent in shuffles[variable].ty_args[0].shape)
                found, following = self._lookups(variable, shuffles[variable])
                if found is not None:
                    gain += 2 * size - found
                group += [one for one in following if one in shuffles and one not in group]
            calls = [shuffles.pop(variable) for variable in group]
            if gain > 0:
                yield from (str(call.args[0].name_hint) for call in calls)

    def _lookups(self, shuffled: Any, call: Any) -> tuple[int | None, list[Any]]:
        """How often readers of a shuffle look something up, and the shuffles among its readers.

        None where one of them cannot look up what it reads, so that it has to be copied.
        """
        axis = int(self._module[call.args[0]].attrs[SHUFFLE][0])
        shape = [int(extent) for extent in call.ty_args[0].shape]
        following: list[Any] = []
        counts: list[int | None] = []
        found = [shuffled]
        for value in found:
            if value in self._returned:
                counts.append(None)
            for kernel, position, made in self._read[value]:
                function = self._module[kernel]
                mark = mark_of(function)
                if mark is None:
                    there = table_axis(function, position, shape, axis)
                    counts.append(
                        None if there is None else count_lookups(function, position, there)
                    )
                elif mark == SHUFFLE:
                    following.append(made)
                elif made not in found:
                    found.append(made)
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None, following

    def _may_be_fused(self, kernel: Any) -> bool:
        mark = mark_of(self._module[kernel])
        return mark is None or (mark == SHUFFLE and kernel.name_hint not in self._looked_up)

    def _visit(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            self._same[binding.var] = value.tuple_value
        if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
            return
        kernel, arguments = value.args[0], value.args[1].fields
        moves = self._pattern(kernel) == _INJECTIVE and len(arguments) == 1
        if moves and relax.analysis.has_reshape_pattern(self._module[kernel]):
            self._same[binding.var] = arguments[0]
            return
        self._calls.append((binding.var, value))
        self._made[binding.var] = value
        for position, argument in enumerate(arguments):
            self._read[self._root(argument)].append((kernel, position, binding.var))

    def _root(self, value: Any) -> Any:
        while value in self._same:
            value = self._same[value]
        return value

    def _pattern(self, kernel: Any) -> int:
        return int((self._module[kernel].attrs or {}).get(_PATTERN, _OPAQUE))

    def _by_heavy(self, value: Any) -> bool:
        """Whether a heavy kernel computes a value, also one that what follows is fused into."""
        made = self._made.get(value)
        if made is None:
            return False
        pattern = self._pattern(made.args[0])
        if pattern > _INJECTIVE:
            return True
        sources = [self._root(argument) for argument in made.args[1].fields]
        return pattern < _INJECTIVE and any(
            self._fusible(source) and len(self._read[source]) == 1 for source in sources
        )

    def _fusible(self, value: Any) -> bool:
        """Whether element-wise operators after a value become part of the kernel before it."""
        made = self._made.get(value)
        if made is None:
            return False
        pattern = self._pattern(made.args[0])
        return pattern == _FUSIBLE or (pattern < _INJECTIVE and self._by_heavy(value))

    def _heavy(self, kernel: Any) -> bool:
        """Whether TVM fuses moves into no such kernel: a product, a reduction, a tuned one."""
        return self._pattern(kernel) > _INJECTIVE or kernel.name_hint in self._looked_up
