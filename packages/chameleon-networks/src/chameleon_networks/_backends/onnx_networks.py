"""Chameleon as a backend of ONNX: runs ONNX models with networks that it compiles without tuning.

``onnx.backend.test.BackendTest(backend, __name__)`` runs ONNX's own test cases with this module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from chameleon_core.plugin_api import ChameleonError, ConfigError, NoOptions
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import TVMTargets
from onnx.backend.base import Backend, BackendRep

from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.onnx.emulated_types import from_interface, to_interface
from chameleon_networks._importers.onnx.importer import import_model
from chameleon_networks._importers.onnx.models import sort_nodes
from chameleon_networks._importers.onnx.quantized_operators import to_qdq
from chameleon_networks._importers.options import DEFAULT
from chameleon_networks._importers.unsupported_operators import UnsupportedOperatorsError

_SMALL = 16
"""Largest size of a floating-point input whose values may be compiled into a network, such as the
scales of ``Resize`` or the bounds of ``Range``. Integer inputs may have any size."""


def untuned(graph: Any, threads: int = 1) -> Any:
    """Compile a network without tuning for this machine, and return it as a function of arrays."""
    target = TVMTargets(NoOptions()).resolve("native")
    module = prepare_module(graph, DEFAULT)
    fusions, none = find_fusions(module), empty_kernels(target)
    executable = compile_network(module, fusions, none, target).executable
    folder = temporary_folder()
    manifest = {**manifest_of(module, fusions, none, target, threads), "untuned": {}}
    write_artifact(Path(folder.name), executable, manifest)
    try:
        network: Any = load(folder.name)
    except RuntimeError as error:
        raise ChameleonError(f"the compiled network cannot be loaded: {error}") from error
    # The folder stays as long as the network, because copies and other processes load it.
    weakref.finalize(network, folder.cleanup)
    return network


class ChameleonRep(BackendRep):
    """An ONNX model that is compiled at its first call with each combination of input shapes.

    Args:
        model: An ``onnx.ModelProto``.
        compiler: A function that compiles a Relax ``IRModule`` and returns a function of arrays.
        inputs: How many inputs, counted from the first, may have other values in each call. The
            values of the remaining inputs are compiled into the network. With None, all inputs may
            have other values.

    Attributes:
        fixed: Names of the inputs whose values were constants in the compiled network of the last
            call.
    """

    def __init__(
        self, model: Any, *, compiler: Callable[[Any], Any] = untuned, inputs: int | None = None
    ) -> None:
        self._compiler, self._inputs = compiler, inputs
        self._model = to_qdq(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        self._names = [tensor.name for tensor in model.graph.input if tensor.name not in constants]
        self._fixed: dict[Any, tuple[str, ...]] = {}
        self._networks: dict[Any, Any] = {}
        self.fixed: tuple[str, ...] = ()

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Compute the model's outputs for some inputs.

        Args:
            inputs: A sequence of arrays, or a mapping from input name to array.

        Raises:
            ChameleonError: The network cannot be compiled.
        """
        if not isinstance(inputs, Mapping):
            values = inputs if isinstance(inputs, list | tuple) else [inputs]
            inputs = dict(zip(self._names, values, strict=True))
        if any(isinstance(value, list) or value is None for value in inputs.values()):
            raise ConfigError(
                "an input is a sequence or left out",
                hint="Give the network an input for each tensor.",
            )
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        usual = () if self._inputs is None else self._names[self._inputs :]
        self.fixed = self._fixed.get(shapes, tuple(usual))
        key = (shapes, *(arrays[name].tobytes() for name in self.fixed))
        network = self._networks.get(key)
        if network is None:
            network = self._compiled(arrays)
            self._fixed[shapes] = self.fixed
            key = (shapes, *(arrays[name].tobytes() for name in self.fixed))
            self._networks[key] = network
        tensors = [to_interface(arrays[name]) for name in self._names if name not in self.fixed]
        result = network(*tensors)
        result = result if isinstance(result, list) else [result]
        kinds = (_kind(output) for output in self._model.graph.output)
        return tuple(from_interface(*pair) for pair in zip(result, kinds, strict=True))

    def _compiled(self, arrays: Mapping[str, Any]) -> Any:
        """Compile a network, with the values that operators need as constants (``fixed``)."""
        shapes = {name: array.shape for name, array in arrays.items()}
        while True:
            values = {name: arrays[name] for name in self.fixed}
            try:
                with warnings_once():
                    return self._compiler(import_model(self._model, shapes, values).module)
            except UnsupportedOperatorsError as refused:
                more = [
                    name
                    for name in refused.names
                    if name not in values
                    and (arrays[name].dtype.kind in "biu" or arrays[name].size <= _SMALL)
                ]
                if not more:
                    raise
                self.fixed += tuple(more)


def _kind(output: Any) -> str:
    kind = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
    return str(np.dtype(kind).name)


class ChameleonBackend(Backend):
    """Runs ONNX models on the CPU of this machine, through ONNX's interface ``Backend``."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> ChameleonRep:
        """Make a ``ChameleonRep`` of a model, as ONNX's interface ``Backend`` defines.

        Args:
            model: The ``onnx.ModelProto``.
            device: The device to run on; only ``CPU`` is supported.
            options: Arguments of ``ChameleonRep``, such as ``inputs``.
        """
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        sort_nodes(copy.graph)
        super().prepare(copy, device)
        return ChameleonRep(copy, **options)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **_: Any) -> tuple[Any, ...]:
        """The outputs of a model."""
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Any = None, **_: Any
    ) -> tuple[Any, ...]:
        """Compute the outputs of a single node, for ONNX's tests of operators.

        The node has the meaning that the newest version of ONNX's operator set defines.
        """
        super().run_node(node, inputs, device, outputs_info)
        arrays = [np.asarray(value) for value in inputs]
        kind = onnx.helper.np_dtype_to_tensor_dtype
        read = [
            onnx.helper.make_tensor_value_info(name, kind(array.dtype), array.shape)
            for name, array in zip(filter(None, node.input), arrays, strict=True)
        ]
        written = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "node", read, written))
        return cls.run_model(onnx.shape_inference.infer_shapes(model), arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU."""
        kind = onnx.backend.base.Device(device).type
        return bool(kind == onnx.backend.base.DeviceType.CPU)


prepare, run_model = ChameleonBackend.prepare, ChameleonBackend.run_model
run_node, supports_device = ChameleonBackend.run_node, ChameleonBackend.supports_device
