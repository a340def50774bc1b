"""The frontends ``builtin``, ``torch`` and ``onnx``: the operators of a network as tasks."""

from __future__ import annotations

import importlib
import warnings
from abc import abstractmethod
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_tvm.frontends.network_options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_tvm.networks.records import NETWORKS
from chameleon_tvm.sources import named_object

_TORCH_HINT = "Install chameleon-tuner-tvm[networks]."


class NetworkFrontend(Frontend):
    """One task per distinct convolution and matrix product of a network.

    Args:
        layout: in which convolutions are tuned.
    """

    def __init__(self, layout: str) -> None:
        self._layout = layout

    @abstractmethod
    def relax_module(self) -> Any:
        """The network as a Relax ``IRModule`` with constant weights.

        Raises:
            ConfigError: it cannot be read; says where.
        """

    def tasks(self, target: str) -> list[Task]:
        from chameleon_tvm.graph.operators import specs_of  # noqa: PLC0415 - needs TVM

        specs = specs_of(self.relax_module(), self._layout)
        if not specs:
            raise ConfigError(
                "the network has no convolution and no matrix product in float32",
                hint="Name the operators to tune under `model: {operators: [...]}`.",
            )
        return [spec.task(spec.name, target) for spec in specs]


class BuiltinFrontend(NetworkFrontend):
    """A network written in this package, with random weights.

    Args:
        options: which one.
    """

    def __init__(self, options: BuiltinOptions) -> None:
        super().__init__(options.layout)
        self._options = options

    def relax_module(self) -> Any:
        torch = _torch()
        from chameleon_tvm.networks.weights import initialise  # noqa: PLC0415 - needs torch

        record = NETWORKS[self._options.network]
        module, _, function = record.factory.partition(":")
        network = initialise(getattr(importlib.import_module(module), function)())
        shape = (self._options.batch, *record.inputs)
        if record.kind == "tokens":
            example = torch.zeros(shape, dtype=torch.int64)
        else:
            example = torch.zeros(shape)
        return _from_torch(torch.export.export(network, (example,)))


class TorchFrontend(NetworkFrontend):
    """A network of the user's in PyTorch.

    Args:
        options: where it is.
    """

    def __init__(self, options: TorchOptions) -> None:
        super().__init__(options.layout)
        self._source = options.source

    def relax_module(self) -> Any:
        torch = _torch()
        if self._source.endswith(".pt2"):
            return _from_torch(self._loaded(torch))
        made = self._made()
        if not isinstance(made, tuple) or len(made) != 2:  # noqa: PLR2004
            raise ConfigError(
                f"{self._source} returned a {type(made).__name__} instead of a pair",
                hint="Return the torch module and a tuple of example inputs.",
            )
        network, inputs = made
        if not isinstance(network, torch.nn.Module):
            raise ConfigError(
                f"{self._source} returned a {type(network).__name__} instead of a torch module",
                hint="Return the torch module and a tuple of example inputs.",
            )
        inputs = inputs if isinstance(inputs, tuple | list) else (inputs,)
        try:
            with torch.no_grad():
                program = torch.export.export(network.eval(), tuple(inputs))
        except Exception as error:
            raise ConfigError(
                f"torch cannot export the network of {self._source}: {_words(error)}",
                hint="Try torch.export.export(module, inputs) by hand.",
            ) from error
        return _from_torch(program)

    def _loaded(self, torch: Any) -> Any:
        try:
            return torch.export.load(self._source)
        except Exception as error:
            raise ConfigError(
                f"{self._source} is no program saved by torch.export: {_words(error)}",
                hint="Save one with torch.export.save(torch.export.export(module, inputs), file).",
            ) from error

    def _made(self) -> Any:
        function = named_object(self._source, "model")
        try:
            return function()
        except Exception as error:
            raise ConfigError(
                f"{self._source} failed: {_words(error)}",
                hint="Call the function by hand to see the whole traceback.",
            ) from error


class OnnxFrontend(NetworkFrontend):
    """A network in an ONNX file.

    Args:
        options: which file.
    """

    def __init__(self, options: OnnxOptions) -> None:
        super().__init__(options.layout)
        self._options = options

    def relax_module(self) -> Any:
        try:
            import onnx  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError(
                "the package onnx is not installed",
                hint="Install chameleon-tuner-tvm[networks].",
            ) from error
        file = self._options.file
        try:
            model = onnx.load(file)
            onnx.checker.check_model(model)
        except FileNotFoundError as error:
            raise ConfigError(
                f"there is no file {file}", hint="Name an ONNX file, relative to the pipeline."
            ) from error
        except Exception as error:
            raise ConfigError(
                f"{file} is no valid ONNX file: {_words(error)}",
                hint="Check it with onnx.checker.check_model; it may be cut off.",
            ) from error
        try:
            from tvm.relax.frontend.onnx import from_onnx  # noqa: PLC0415 - needs onnx

            shapes = {name: list(shape) for name, shape in self._options.shapes.items()}
            module = from_onnx(model, shape_dict=shapes or None, keep_params_in_input=False)
        except Exception as error:
            raise ConfigError(
                f"TVM cannot read {file}: {_words(error)}",
                hint="Fix open shapes under `shapes`; an operator may be unsupported.",
            ) from error
        return module


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ConfigError("torch is not installed", hint=_TORCH_HINT) from error


def _from_torch(program: Any) -> Any:
    from chameleon_tvm.graph.relaxed import relax  # noqa: PLC0415, F401 - TVM without torch first

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tvm.relax.frontend.torch import from_exported_program  # noqa: PLC0415

        try:
            return from_exported_program(program, keep_params_as_input=False)
        except Exception as error:
            raise ConfigError(
                f"TVM cannot read the network: {_words(error)}",
                hint="An operator may be unsupported; the message names it.",
            ) from error


def _words(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
