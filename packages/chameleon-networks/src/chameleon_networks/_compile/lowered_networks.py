"""Networks whose operators have no kernels yet: their other functions, and their open axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import attrs
from chameleon_tvm.api import open_axes, tirx, tvm_target

from chameleon_networks._compile.compile import lower_and_fuse
from chameleon_networks._compile.default_schedules import TASK_ATTRIBUTE
from chameleon_networks._compile.insert_kernels import insert_kernels
from chameleon_networks._compile.kernels import OperatorKernel
from chameleon_networks._compile.open_dimension import OpenDimension, OtherCall
from chameleon_networks._compile.open_layouts import NotOpenError, OpenLayouts, OpenSizes
from chameleon_networks._compile.prepared_networks import Prepared
from chameleon_networks._compile.sequence.calls import Call, CallSequence, read_call_sequence
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import bindings_of, operator_name, relax, tvm

_POOLS = {f"relax.nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)}


def functions_without_kernels(
    module: Any, fusions: Sequence[FusionGroup], target: str
) -> list[tuple[Any, int]]:
    """The functions, such as a softmax, outside of fusion groups, and their calls per inference."""
    with tvm_target(target), tvm.transform.PassContext(opt_level=3):
        functions = lower_and_fuse(insert_kernels(module, fusions, _placeholder_kernel))
    calls: Counter[str] = Counter()

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            calls.update(
                str(a.name_hint) for a in expression.args if isinstance(a, tvm.ir.GlobalVar)
            )

    relax.analysis.post_order_visit(functions["main"], visit)
    return [
        (function, calls[str(variable.name_hint)])
        for variable, function in functions.functions_items()
        if isinstance(function, tirx.PrimFunc) and TASK_ATTRIBUTE not in (function.attrs or {})
    ]


def _placeholder_kernel(fusion: FusionGroup) -> OperatorKernel:
    """A kernel that computes nothing, to find the functions of the rest of the network."""
    # An expression that is not in the graph yet has no type; it is float32.
    types = [getattr(expression, "ty", None) for expression in (*fusion.inputs, fusion.last)]
    kinds = [str(getattr(kind, "dtype", "float32")) for kind in types]
    buffers = [tirx.decl_buffer([1], kind, f"x{index}") for index, kind in enumerate(kinds)]
    function = tirx.PrimFunc(buffers, tirx.Evaluate(0)).with_attr("tirx.noalias", True)
    return OperatorKernel(
        task="placeholder",
        function=function,
        arguments=(None,) * len(fusion.inputs),
        plain_loops=True,
    )


@attrs.frozen(eq=False)
class LoweredNetwork:
    """The calls of a network whose operators have no kernels yet.

    Attributes:
        sequence: The calls.
        functions: The functions of the calls, by name.
        operators: The fusion groups of the functions that stand for operators, by name.
        windows: The fusion groups and the bindings of pooling operators, in order.
    """

    sequence: CallSequence
    functions: Mapping[str, Any]
    operators: Mapping[str, FusionGroup]
    windows: Sequence[Any]

    @classmethod
    def of(cls, prepared: Prepared, target: str) -> Self:
        """Lower a prepared network.

        Raises:
            NotStaticError: The network is no sequence of kernel calls.
        """
        module, fusions = prepared
        numbers = {fusion.last: number for number, fusion in enumerate(fusions)}

        def placeholder(fusion: FusionGroup) -> OperatorKernel:
            kernel = _placeholder_kernel(fusion)
            return attrs.evolve(kernel, task=f"placeholder {numbers[fusion.last]}")

        with tvm_target(target), tvm.transform.PassContext(opt_level=3):
            lowered = lower_and_fuse(insert_kernels(module, fusions, placeholder))
        sequence = read_call_sequence(lowered)
        functions = {call.kernel: lowered[call.kernel] for call in sequence.calls}
        named = {name: (own.attrs or {}).get(TASK_ATTRIBUTE) for name, own in functions.items()}
        operators = {
            name: fusions[int(str(task).split()[1])] for name, task in named.items() if task
        }
        groups = {fusion.last: fusion for fusion in fusions}
        windows = [
            groups.get(binding.var, binding)
            for binding in bindings_of(module["main"])
            if binding.var in groups or operator_name(binding.value) in _POOLS
        ]
        return cls(sequence, functions, operators, windows)

    def pairs(self, other: LoweredNetwork) -> Iterator[tuple[Call, Call]]:
        """The calls of this network, each with that of the network with another size.

        Raises:
            NotOpenError: The other network has other calls.
        """
        calls = self.sequence.calls, other.sequence.calls
        if len(calls[0]) != len(calls[1]):
            raise NotOpenError("it has other kernels for another size")
        for mine, theirs in zip(*calls, strict=True):
            same = (mine.kernel in self.operators) == (theirs.kernel in other.operators)
            if not same or len(mine.arguments) != len(theirs.arguments):
                raise NotOpenError("it has other kernels for another size")
            yield mine, theirs


def open_dimension(
    network: LoweredNetwork, other: LoweredNetwork, sizes: tuple[int, int]
) -> OpenDimension:
    """Find the open axes of a network from another one, which differs in one size of its inputs.

    Args:
        network: The network.
        other: The other network.
        sizes: The size in both networks.

    Raises:
        NotOpenError: A call may not compute a part of the dimension, for the reason given.
    """
    layouts = OpenLayouts({sizes: open_axes.OpenAxis(extent=sizes[0])})
    pairs = [*network.pairs(other)]
    for window, another in zip(network.windows, other.windows, strict=False):
        if isinstance(window, FusionGroup) and isinstance(another, FusionGroup):
            layouts.learn_image(window, another)
        elif not isinstance(window, FusionGroup) and not isinstance(another, FusionGroup):
            layouts.learn_pool(window, another)
    for mine, theirs in pairs:
        for tensors in zip(mine.arguments, theirs.arguments, strict=True):
            layouts.learn(*tensors)
    operators: dict[Any, open_axes.OpenAxes] = {}
    calls: list[OtherCall] = []
    dimension = OpenDimension(extent=sizes[0], axes=layouts.axes, operators=operators, others=calls)
    known: dict[Any, OtherCall] = {}
    for mine, theirs in pairs:
        guesses = _guesses(layouts, mine, theirs)
        own = guesses[0]
        if group := network.operators.get(mine.kernel):
            axes = layouts.operator(group, other.operators[theirs.kernel], mine, own)
            operators[group.last] = open_axes.OpenAxes(axes=axes)
        else:
            function = other.functions[theirs.kernel]
            options = [OtherCall(function=function, sizes=guess) for guess in guesses]
            # Layers of a network call the same functions, and to try one compiles it.
            constants = [id(tensor.storage.constant) for tensor in mine.arguments]
            axes_of = [[tuple(own.items()) for own in guess] for guess in guesses]
            key = mine.kernel, theirs.kernel, *constants, str(axes_of)
            if key not in known:
                known[key] = _opened(dimension, network.functions[mine.kernel], mine, options)
            calls.append(known[key])
            own = calls[-1].sizes
        for tensor, sizes_of_tensor in zip(mine.arguments, own, strict=True):
            layouts.keep(tensor, sizes_of_tensor)
    return dimension


def _guesses(layouts: OpenLayouts, mine: Call, theirs: Call) -> list[OpenSizes]:
    """The guesses for the open axes of a call's tensors, the likeliest first."""
    reads = [*map(layouts.of, mine.reads, theirs.reads)]
    like = {axis for own in reads for axis in own.values()}
    pairs = [*zip(mine.writes, theirs.writes, strict=True)]
    return [
        [*reads, *(layouts.of(*tensors, like, attempt) for tensors in pairs)]
        for attempt in range(2)
    ]


def _opened(
    dimension: OpenDimension, function: Any, call: Call, options: Sequence[OtherCall]
) -> OtherCall:
    """The first option with which a function computes its part from the part of its inputs.

    Raises:
        NotOpenError: There is none.
    """
    first, second = options
    try:
        dimension.opened(function, call, first)
    except NotOpenError:
        if first.sizes == second.sizes:
            raise
        dimension.opened(function, call, second)
        return second
    return first
