"""Simulates a network with reduced dtypes: float32 kernels compute with rounded numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays, SpaceProvider, Winner
from chameleon_tvm.building.lowering import UNCHECKED
from chameleon_tvm.device.targets import tvm_target
from chameleon_tvm.spaces.auto import AutoSpace
from chameleon_tvm.spaces.options import AutoOptions
from chameleon_tvm.types import FLOAT32
from numpy.typing import NDArray

from chameleon_networks.compile.compile import fused, interpreted
from chameleon_networks.compile.defaults import OURS
from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.compile.loop_tasks import TunedLoops
from chameleon_networks.compile.placing import with_kernels
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import bindings_of, emitted, relax, tvm
from chameleon_networks.quantize.ranges import LEVELS, Affine
from chameleon_networks.quantize.reads import Form, Network, Reads
from chameleon_networks.quantize.weights import Means, constants_in

_ALGORITHMS: Any = ("direct",)


def guessed_kernels(
    chains: Sequence[FusedOperator], target: str, space: SpaceProvider | None = None
) -> Kernels:
    """Make kernels of fused operators without tuning, from the first guesses of a design space.

    Args:
        chains: The fused operators of the network.
        target: The resolved target.
        space: The design space. None uses the default space of CPUs, without Winograd's algorithm.
    """
    space = space or AutoSpace(AutoOptions(algorithms=_ALGORITHMS))
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
    """A compiled network that calls a Python function on each tensor that fused operators read.

    The function can observe or round the tensors.

    Attributes:
        executable: The executable of Relax's virtual machine. Its function ``main`` takes the
            inputs, then all constants.
        placed: Indices of the fused operators that have kernels, in the order of their constants.
    """

    executable: Any
    placed: tuple[int, ...]


def opened(
    module: Any, chains: Sequence[FusedOperator], kernels: Kernels, target: str, function: str
) -> OpenedNetwork:
    """Compile a network that calls a function on each tensor that a fused operator reads.

    Args:
        module: The module that ``prepared`` returned.
        chains: The fused operators of the network.
        kernels: The kernels of the fused operators.
        target: The resolved target.
        function: The name of a global TVM function. Its arguments are a tensor, the index of the
            fused operator that reads it, the number of that input, and the tensor for the result.
    """
    places = {chain.last: index for index, chain in enumerate(chains)}
    packed: dict[int, tuple[bool, ...]] = {}

    def kernel_of(chain: FusedOperator) -> Any:
        kernel = kernels.of(chain)
        if kernel is not None:
            packed[places[chain.last]] = tuple(array is not None for array in kernel.arguments)
        return kernel

    resolved = tvm_target(target)
    with resolved, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        placed = with_kernels(module, chains, kernel_of)
        # Kernels stand where the last operators of their chains were.
        lasts = [binding.var for binding in bindings_of(module["main"])]
        order = [places[last] for last in lasts if places.get(last) in packed]
        opener = _Opener(placed, [(index, packed[index]) for index in order], function)
        variable = placed.get_global_var("main")
        opener.builder_.update_func(variable, opener.with_parameters(placed["main"]))
        executable = interpreted(fused(opener.builder_.get()), target, TunedLoops.of(()))
    return OpenedNetwork(executable=executable, placed=tuple(order))


@relax.expr_functor.mutator
class _Opener(relax.PyExprMutator):
    """Inserts calls of a function before kernels, and makes the kernels' constants parameters."""

    def __init__(
        self, module: Any, order: Sequence[tuple[int, Sequence[bool]]], function: str
    ) -> None:
        """Take each kernel's operator index, and which of its arguments are packed constants."""
        super().__init__(module)
        self._ours = {
            variable
            for variable, value in module.functions_items()
            if OURS in (getattr(value, "attrs", None) or {})
        }
        self._order = iter(order)
        self._function = function
        self._parameters: list[Any] = []

    def with_parameters(self, function: Any) -> Any:
        """Rewrite a Relax function so that the constants of its kernels are parameters."""
        result = self.visit_expr(function)
        parameters = [*result.params, *self._parameters]
        return relax.Function(parameters, result.body, result.ret_ty, result.is_pure, result.attrs)

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
        index, packed = next(self._order)
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
                read = self._changed(self.visit_expr(argument), index, number)
                arguments.append(self.builder_.emit(read))
            number += 1
        result = relax.call_tir(call.args[0], arguments, call.ty_args[0])
        self.set_var_remap(binding.var, emitted(self.builder_, result, binding.var))

    def _parameter(self, constant: Any) -> Any:
        name = f"constant_{len(self._parameters)}"
        self._parameters.append(relax.Var(name, constant.ty))
        return self._parameters[-1]

    def _changed(self, variable: Any, index: int, number: int) -> Any:
        """The call of the TVM function on a tensor."""
        kind = relax.TensorType(shape_of(variable), str(variable.ty.dtype))
        numbers = [relax.prim_value(index), relax.prim_value(number)]
        arguments = relax.Tuple([variable, *numbers])
        return relax.call_dps_packed(self._function, arguments, kind)


log = structlog.get_logger()

Ranges = Mapping[str, Affine]
Types = Mapping[int, str]
Observer = Callable[[int, int, NDArray[Any]], None]

_NUMBERS = itertools.count()


class SimulatedNetwork:
    """Simulates a network for any choice of dtypes of its fused operators, compiled once.

    Tensors that a fused operator reads in a dtype are rounded to the dtype and back. The weights of
    the operator are rounded in the same way. Products are summed in float32. (Jacob et al., arXiv
    1712.05877, section 3: simulated quantization.) The rounding of biases to integers is not
    simulated. It changes a sum by at most half of its integer unit, which is far less than the
    rounding of the sum's products.

    Args:
        module: The module that ``prepared`` returned.
        chains: The fused operators of the network.
        target: The resolved target, which must be this machine.

    Attributes:
        network: An object that knows which operators read each tensor of the network.
        places: Indices of the fused operators that can be simulated.
        overflowed: Whether rounding made a finite number infinite in the last run. Later operators,
            such as ReLU6, may hide that.
    """

    def __init__(self, module: Any, chains: Sequence[FusedOperator], target: str) -> None:
        self.network = Network(module, chains)
        self._chains = chains
        self._kernels = guessed_kernels(chains, target)
        name = f"chameleon.precision.read_{next(_NUMBERS)}"
        tvm.register_global_func(name, self._read)
        network = opened(module, chains, self._kernels, target, name)
        self.places = network.placed
        self._machine = relax.VirtualMachine(network.executable, tvm.cpu())
        self._constants: dict[tuple[int, str], list[Any]] = {}
        self._means: Means = {}
        self._forms: dict[tuple[int, int], Form] = {}
        self._observer: Observer | None = None
        self._raised: ChameleonError | None = None
        self.overflowed = False

    @property
    def means(self) -> Means:
        """The mean of each channel of the tensors that fused operators read, by tensor name.

        With these means, biases are corrected for the rounding of weights.
        """
        return self._means

    @means.setter
    def means(self, means: Means) -> None:
        self._means = means
        self._constants = {key: data for key, data in self._constants.items() if key[1] == FLOAT32}

    def outputs(
        self,
        inputs: Arrays,
        types: Types | None = None,
        ranges: Ranges | None = None,
        observer: Observer | None = None,
    ) -> Arrays:
        """Run the network once.

        Args:
            inputs: One array for each input.
            types: The dtypes of fused operators, by index. Other operators compute in float32.
            ranges: The range of each tensor that is read in int8, by tensor name.
            observer: A function that is called with each input of a fused operator, before the
                input is rounded. Its arguments are the operator's index, the number of the input,
                and an array. The array is only valid during the call.

        Raises:
            ChameleonError: The observer raised it.
        """
        reduced = {index: kind for index, kind in (types or {}).items() if kind != FLOAT32}
        self._forms = self._forms_of(Reads(self.network, reduced, ranges or {}))
        self._observer = observer
        self.overflowed = False
        constants = [
            tensor
            for index in self.places
            for tensor in self._packed(index, reduced.get(index, FLOAT32))
        ]
        tensors = [tvm.runtime.tensor(array) for array in inputs]
        try:
            outputs = self._machine["main"](*tensors, *constants)
        except RuntimeError:
            # On its way through TVM an error becomes another one.
            raised, self._raised = self._raised, None
            if raised is None:
                raise
            raise raised from None
        return [tensor.numpy() for tensor in ([outputs] if hasattr(outputs, "numpy") else outputs)]

    def _forms_of(self, reads: Reads) -> dict[tuple[int, int], Form]:
        forms = {}
        for index in self.places:
            edges = [(read, readers[0]) for read, readers in self.network.operands(index)]
            residual = self.network.residual(index) if index in reads.narrow else None
            edges += [] if residual is None else [residual]
            for number, (read, reader) in enumerate(edges):
                form = reads.of.get(reader, {}).get(read)
                if form is not None:
                    forms[index, number] = form
        return forms

    def _read(self, source: Any, index: int, number: int, out: Any) -> None:
        """Round a tensor before a kernel reads it; TVM calls this method."""
        values, written = np.from_dlpack(source), np.from_dlpack(out)
        if self._observer is not None:
            try:
                self._observer(index, number, values)
            except ChameleonError as error:
                self._raised = error
                raise
        form = self._forms.get((index, number))
        _round(values, form, written)
        if form is None:
            return
        infinite = np.isinf(written)
        if infinite.any() and np.isfinite(values[infinite]).any():
            self.overflowed = True

    def _packed(self, index: int, kind: str) -> list[Any]:
        """The constants of a fused operator in a dtype, in the layout of its kernel."""
        if (index, kind) not in self._constants:
            chain = self._chains[index]
            mean = self._means.get(self.network.names.get(chain.inputs[0], ""))
            constants = constants_in(chain, kind, mean)
            kernel = self._kernels.of(attrs.evolve(chain, constants=constants))
            assert kernel is not None  # noqa: S101 - it was placed
            packed = [array for array in kernel.arguments if array is not None]
            self._constants[index, kind] = [tvm.runtime.tensor(array) for array in packed]
        return self._constants[index, kind]


def _round(values: NDArray[Any], form: Form | None, written: NDArray[Any]) -> None:
    """Round values to a form and back, into ``written``, without allocating memory."""
    if form is None:
        np.copyto(written, values)
    elif form.affine is None:
        np.copyto(written, form.kind.rounded(values))
    else:
        zero = np.float32(form.affine.zero_point)
        with np.errstate(over="ignore"):
            np.divide(values, np.float32(form.affine.scale), out=written)
        np.rint(written, out=written)
        # Clipped around zero, which is the same as with the zero point added and taken off.
        np.clip(written, -zero, LEVELS - zero, out=written)
        np.multiply(written, np.float32(form.affine.scale), out=written)
