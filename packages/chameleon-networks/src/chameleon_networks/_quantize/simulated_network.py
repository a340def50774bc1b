"""Simulates a network with reduced dtypes: float32 kernels compute with rounded numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, Arrays, ChameleonError, Delivery, SpaceProvider
from chameleon_tvm.api import UNCHECKED, AutoOptions, AutoSpace, tvm_target
from numpy.typing import NDArray

from chameleon_networks._compile.compile import compile_bytecode, lower_and_fuse
from chameleon_networks._compile.insert_kernels import insert_kernels
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.loop_tasks import TunedLoops
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import bindings_of, relax, shape_of, tvm
from chameleon_networks._quantize.data_flow import DataFlow, ReadFormats, TensorFormat
from chameleon_networks._quantize.ranges import LEVELS, Affine
from chameleon_networks._quantize.weights import Means, constants_for

_ALGORITHMS: Any = ("direct",)


def first_guess_kernels(
    fusions: Sequence[FusionGroup], target: str, space: SpaceProvider | None = None
) -> Kernels:
    """Make untuned kernels of fusion groups, with the first guess of a design space for each."""
    space = space or AutoSpace(AutoOptions(algorithms=_ALGORITHMS))
    winners = {}
    for number, spec in enumerate(dict.fromkeys(fusion.spec for fusion in fusions)):
        task = spec.task(f"chain_{number}", target)
        guesses = [tuple(map(int, row)) for row in space.design_space(task).first_guesses]
        if guesses:
            first, *others = guesses
            winners[task.key] = Delivery.Winner(task=task, config=first, guesses=tuple(others))
    return Kernels(winners, space, target)


def compile_with_input_hook(
    module: Any, fusions: Sequence[FusionGroup], kernels: Kernels, target: str, function: str
) -> tuple[Any, tuple[int, ...]]:
    """Compile a network that calls a global function on each input of a fusion group."""
    # ``main`` also takes the constants of the fusion groups whose indices are returned.
    indices = {fusion.last: index for index, fusion in enumerate(fusions)}
    kernels_by_output = {fusion.last: kernels.of(fusion) for fusion in fusions}

    def hook_input(fusion: FusionGroup, number: int, tensor: Any) -> Any:
        out_type = relax.TensorType(shape_of(tensor), str(tensor.ty.dtype))
        numbers = [relax.prim_value(indices[fusion.last]), relax.prim_value(number)]
        return relax.call_dps_packed(function, relax.Tuple([tensor, *numbers]), out_type)

    resolved = tvm_target(target)
    with resolved, tvm.transform.PassContext(opt_level=3, config=UNCHECKED):
        with_kernels = insert_kernels(
            module, fusions, lambda fusion: kernels_by_output[fusion.last], hook_input=hook_input
        )
        executable = compile_bytecode(lower_and_fuse(with_kernels), target, TunedLoops.of(()))
    # A kernel replaces the last operator of its fusion group.
    lasts = [binding.var for binding in bindings_of(module["main"])]
    order = tuple(indices[last] for last in lasts if kernels_by_output.get(last) is not None)
    return executable, order


Ranges = Mapping[str, Affine]
Types = Mapping[int, str]
Observer = Callable[[int, int, NDArray[Any]], None]

_NUMBERS = itertools.count()


class SimulatedNetwork:
    """Simulates any choice of dtypes by rounding tensors and weights, compiled once.

    Attributes:
        network: An object that knows which operators read each tensor of the network.
        indices: Indices of the fusion groups that can be simulated.
        overflowed: Whether rounding made a finite number infinite in the last run. Later operators,
            such as ReLU6, may hide that.
    """

    # Jacob et al., arXiv 1712.05877, section 3. Biases are not rounded, because that changes sums
    # far less.

    def __init__(self, module: Any, fusions: Sequence[FusionGroup], target: str) -> None:
        self.network = DataFlow(module, fusions)
        self._fusions = fusions
        self._kernels = first_guess_kernels(fusions, target)
        name = f"chameleon.precision.read_{next(_NUMBERS)}"
        tvm.register_global_func(name, self._on_input)
        executable, self.indices = compile_with_input_hook(
            module, fusions, self._kernels, target, name
        )
        self._machine = relax.VirtualMachine(executable, tvm.cpu())
        self._constants: dict[tuple[int, str], list[Any]] = {}
        self._means: Means = {}
        self._formats: dict[tuple[int, int], TensorFormat] = {}
        self._observer: Observer | None = None
        self._observer_error: ChameleonError | None = None
        self.overflowed = False

    @property
    def means(self) -> Means:
        """The mean of each channel of fusion groups' data, by tensor name, to correct biases."""
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
        """Run the network once."""
        reduced = {index: dtype for index, dtype in (types or {}).items() if dtype != FLOAT32}
        self._formats = self._input_formats(ReadFormats(self.network, reduced, ranges or {}))
        self._observer = observer
        self.overflowed = False
        constants = [
            tensor
            for index in self.indices
            for tensor in self._packed(index, reduced.get(index, FLOAT32))
        ]
        tensors = [tvm.runtime.tensor(array) for array in inputs]
        try:
            outputs = self._machine["main"](*tensors, *constants)
        except RuntimeError:
            # TVM turns an error of the observer into a ``RuntimeError``.
            error, self._observer_error = self._observer_error, None
            if error is None:
                raise
            raise error from None
        return [tensor.numpy() for tensor in ([outputs] if hasattr(outputs, "numpy") else outputs)]

    def _input_formats(self, reads: ReadFormats) -> dict[tuple[int, int], TensorFormat]:
        formats = {}
        for index in self.indices:
            edges = [(read, readers[0]) for read, readers in self.network.operands(index)]
            residual = self.network.residual(index) if index in reads.reduced_outputs else None
            edges += [] if residual is None else [residual]
            for number, (read, reader) in enumerate(edges):
                tensor_format = reads.of.get(reader, {}).get(read)
                if tensor_format is not None:
                    formats[index, number] = tensor_format
        return formats

    def _on_input(self, source: Any, index: int, number: int, out: Any) -> None:
        """Round a tensor before a kernel reads it; TVM calls this method."""
        values, out_values = np.from_dlpack(source), np.from_dlpack(out)
        if self._observer is not None:
            try:
                self._observer(index, number, values)
            except ChameleonError as error:
                self._observer_error = error
                raise
        tensor_format = self._formats.get((index, number))
        _round_to_format(values, tensor_format, out_values)
        if tensor_format is None:
            return
        infinite = np.isinf(out_values)
        if infinite.any() and np.isfinite(values[infinite]).any():
            self.overflowed = True

    def _packed(self, index: int, dtype: str) -> list[Any]:
        """The constants of a fusion group in a dtype, in the layout of its kernel."""
        if (index, dtype) not in self._constants:
            fusion = self._fusions[index]
            mean = self._means.get(self.network.names.get(fusion.inputs[0], ""))
            constants = constants_for(fusion, dtype, mean)
            kernel = self._kernels.of(attrs.evolve(fusion, constants=constants))
            assert kernel is not None  # noqa: S101 - the network uses this kernel
            packed = [array for array in kernel.arguments if array is not None]
            self._constants[index, dtype] = [tvm.runtime.tensor(array) for array in packed]
        return self._constants[index, dtype]


def _round_to_format(
    values: NDArray[Any], tensor_format: TensorFormat | None, out_values: NDArray[Any]
) -> None:
    """Quantize and dequantize values into ``out_values``, without allocating memory."""
    if tensor_format is None:
        np.copyto(out_values, values)
    elif tensor_format.affine is None:
        np.copyto(out_values, tensor_format.storage.rounded(values))
    else:
        zero = np.float32(tensor_format.affine.zero_point)
        with np.errstate(over="ignore"):
            np.divide(values, np.float32(tensor_format.affine.scale), out=out_values)
        np.rint(out_values, out=out_values)
        # Clipped relative to the zero point.
        np.clip(out_values, -zero, LEVELS - zero, out=out_values)
        np.multiply(out_values, np.float32(tensor_format.affine.scale), out=out_values)
