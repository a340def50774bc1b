"""A network opened at its chains: what they read can be seen and changed, and so can weights.

In front of every tensor that a kernel reads stands a call of a function of this process, which gets
the tensor and writes what the kernel is to read; behind what a kernel writes stands another.
Weights and biases, packed as the kernels want them, are parameters. So one compilation serves every
choice of types, and what was observed need not be kept, however large the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from chameleon_core.stages import Winner
from chameleon_tvm.device.targets import tvm_target
from chameleon_tvm.spaces.auto import AutoSpace
from chameleon_tvm.spaces.options import AutoOptions

from chameleon_networks.compile.compile import fused, interpreted
from chameleon_networks.compile.defaults import OURS
from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.compile.loop_tasks import TunedLoops
from chameleon_networks.compile.placing import with_kernels
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax, tvm

_ALGORITHMS: Any = ("direct",)


def guessed_kernels(chains: Sequence[FusedOperator], target: str) -> Kernels:
    """Kernels that nobody tuned: the space's first guesses, which compute products directly.

    Args:
        chains: of the network.
        target: the resolved target.
    """
    space = AutoSpace(AutoOptions(algorithms=_ALGORITHMS))
    winners = {}
    for number, spec in enumerate(dict.fromkeys(chain.spec for chain in chains)):
        task = spec.task(f"chain_{number}", target)
        guesses = [tuple(map(int, row)) for row in space.design_space(task).first_guesses]
        if guesses:
            first, *others = guesses
            winners[task.key] = Winner(task=task, config=first, guesses=tuple(others))
    return Kernels(winners, space, target)


@attrs.frozen(kw_only=True, eq=False)
class OpenedNetwork:
    """A network that was compiled to be opened at its chains.

    Attributes:
        executable: of Relax's virtual machine; ``main`` takes the inputs, then all constants.
        placed: places of the chains whose kernels are in it, in the order of their constants.
    """

    executable: Any
    placed: tuple[int, ...]


def opened(
    module: Any, chains: Sequence[FusedOperator], kernels: Kernels, target: str, function: str
) -> OpenedNetwork:
    """Compile a network so that it is open at its chains.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        kernels: of the chains.
        target: the resolved target.
        function: name of a global function of TVM's, which gets a tensor, the place of the chain
            that reads it, the number of the chain's input, and a tensor to write.
    """
    places = {chain.last: place for place, chain in enumerate(chains)}
    packed: dict[int, tuple[bool, ...]] = {}

    def kernel_of(chain: FusedOperator) -> Any:
        kernel = kernels.of(chain)
        if kernel is not None:
            packed[places[chain.last]] = tuple(one is not None for one in kernel.arguments)
        return kernel

    resolved = tvm_target(target)
    with (
        resolved,
        tvm.transform.PassContext(opt_level=3, config={"tirx.disable_assert": True}),
    ):
        placed = with_kernels(module, chains, kernel_of)
        # Kernels stand where the last operators of their chains were.
        lasts = [one.var for block in module["main"].body.blocks for one in block.bindings]
        order = [places[last] for last in lasts if places.get(last) in packed]
        opener = _Opener(placed, [(place, packed[place]) for place in order], function)
        variable = placed.get_global_var("main")
        opener.builder_.update_func(variable, opener.with_parameters(placed["main"]))
        executable = interpreted(fused(opener.builder_.get()), target, TunedLoops.of(()))
    return OpenedNetwork(executable=executable, placed=tuple(order))


@relax.expr_functor.mutator
class _Opener(relax.PyExprMutator):
    """Puts calls of a function in front of what kernels read, parameters in constants' places."""

    def __init__(
        self, module: Any, order: Sequence[tuple[int, Sequence[bool]]], function: str
    ) -> None:
        """Take the places of the kernels' chains, and of each argument whether it was packed."""
        super().__init__(module)
        self._ours = {
            variable
            for variable, one in module.functions_items()
            if OURS in (getattr(one, "attrs", None) or {})
        }
        self._order = iter(order)
        self._function = function
        self._parameters: list[Any] = []

    def with_parameters(self, function: Any) -> Any:
        """A function with further parameters for the constants of its kernels."""
        made = self.visit_expr(function)
        parameters = [*made.params, *self._parameters]
        return relax.Function(parameters, made.body, made.ret_ty, made.is_pure, made.attrs)

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        ours = (
            isinstance(call, relax.Call)
            and call.op == tvm.ir.Op.get("relax.call_tir")
            and call.args[0] in self._ours
        )
        if not ours:
            super().visit_var_binding_(binding)
            return
        place, packed = next(self._order)
        number = 0
        arguments = []
        for argument, is_packed in zip(call.args[1].fields, packed, strict=True):
            if is_packed:
                arguments.append(self._parameter(argument))
                continue
            if isinstance(argument, tvm.ir.GenericConst):
                # Data may be constant as well, such as a recurrent layer's first state.
                arguments.append(argument)
            else:
                read = self._changed(self.visit_expr(argument), place, number)
                arguments.append(self.builder_.emit(read))
            number += 1
        made = relax.call_tir(call.args[0], arguments, call.ty_args[0])
        inner = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if inner else self.builder_.emit_output
        self.set_var_remap(binding.var, emit(made))

    def _parameter(self, constant: Any) -> Any:
        name = f"constant_{len(self._parameters)}"
        self._parameters.append(relax.Var(name, constant.ty))
        return self._parameters[-1]

    def _changed(self, variable: Any, place: int, number: int) -> Any:
        """The call that gives what the function of the process makes of a tensor."""
        kind = relax.TensorType(shape_of(variable), str(variable.ty.dtype))
        numbers = [relax.prim_value(place), relax.prim_value(number)]
        arguments = relax.Tuple([variable, *numbers])
        return relax.call_dps_packed(self._function, arguments, kind)
